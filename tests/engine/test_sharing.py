"""Selective sharing under vLLM's own cache manager: one public prefix, private tails."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from prefixctl.core.governing import DeviceSettings, Sharing
from prefixctl.core.keys import block_hashes
from prefixctl.core.tenancy import Secret
from prefixctl.core.ticket import Ticket
from prefixctl.engine.hashing import hash_function
from prefixctl.ids import Salt

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
GROUP, OTHER = Salt("salt-of-the-group"), Salt("salt-of-another-group")
PUBLIC = list(range(18))
"""Four full blocks and a half."""


@pytest.fixture(autouse=True)
def stock_keys():
    """What a test installs is taken out again."""
    from vllm.v1.core import block_pool, kv_cache_utils

    stock = kv_cache_utils.generate_block_hash_extra_keys
    yield
    kv_cache_utils.generate_block_hash_extra_keys = stock
    block_pool.generate_block_hash_extra_keys = stock


def bench(sharing=Sharing.ON, *, blocks=41, events=False, **settings):
    from tests.engine.pools import Bench

    made = Bench(
        blocks, DeviceSettings(ttl_seconds=None, sharing=sharing, **settings), events=events
    )
    made.ask("share", stamp="1", groups={str(GROUP): {"support@1": PUBLIC}})
    return made


def ticket(tenant, *, group=GROUP, secret=None):
    from tests.engine.pools import SECRET

    made = Ticket(tenant=tenant, salt=Salt(f"salt-{tenant}"), group_salt=group, prefix="support@1")
    return made.sign(secret or SECRET)


def run(made, tenant, tail, *, begin=PUBLIC, **more):
    signed = more.pop("ticket", None) or ticket(tenant, **more)
    return made.run([*begin, *tail], f"salt-{tenant}", ticket=signed)


def test_tenants_share_the_full_public_blocks_and_nothing_behind():
    made = bench()
    tail = list(range(100, 120))
    assert run(made, "a", tail) == 0
    assert run(made, "b", tail) == 16, "the half block is private: it carries the tenant's salt"
    assert run(made, "b", [*tail, 1, 2]) == 36
    assert run(made, "a", [*tail, 1, 2]) == 36
    made.check()


def test_the_public_prefix_is_held_once_and_charged_to_the_group():
    made = bench(blocks=81)
    for number in range(8):
        run(made, f"t{number}", range(100, 108))
    owners = made.pool.governor.owners
    assert owners.blocks[owners.number(GROUP)] == 4
    assert all(owners.blocks[owners.number(f"salt-t{n}")] == 2 for n in range(8))
    counters = made.pool.governor.counters
    assert counters["shared_requests", "support@1", "shared"] == 8
    assert counters["cross_tenant_hits",] == 0


@pytest.mark.parametrize("kind", ["none", "forged", "of another salt", "of another group", "noise"])
def test_without_a_ticket_of_the_gateway_there_is_no_governed_block(kind):
    made = bench()
    run(made, "a", range(100, 120))
    tickets = {
        "none": None,
        "forged": ticket("b", secret=Secret(b"another secret of tests")),
        "of another salt": ticket("a"),
        "of another group": ticket("b", group=OTHER),
        "noise": "x.y",
    }
    assert made.run([*PUBLIC, *range(100, 120)], "salt-b", ticket=tickets[kind]) == 0
    forged = made.pool.governor.counters["forged_tickets",]
    assert forged == (kind in {"forged", "of another salt", "noise"})


def test_a_client_that_sends_the_group_salt_itself_sees_no_tail():
    """It would have to know a secret; even then only what is public is there."""
    made = bench()
    run(made, "a", range(100, 120))
    assert made.run([*PUBLIC, *range(100, 120)], str(GROUP)) == 16


def test_only_registered_tokens_qualify():
    made = bench()
    begin = [*PUBLIC[:15], 99, *PUBLIC[16:]]
    run(made, "a", range(100, 120), begin=begin)
    assert run(made, "b", range(100, 120), begin=begin) == 0


def test_what_stands_behind_the_full_blocks_is_the_clients():
    made = bench()
    run(made, "a", range(100, 120))
    assert run(made, "b", range(100, 120), begin=[*PUBLIC[:16], 98, 99]) == 16


def test_the_longest_public_prefix_counts_and_a_new_version_takes_over():
    made = bench()
    longer = [*PUBLIC, *range(50, 60)]
    both = {str(GROUP): {"support@1": PUBLIC, "support@2": longer}}
    assert made.ask("share", stamp="1") == {"wanted": False}, "that is known"
    assert made.ask("share", stamp="2") == {"wanted": True}
    made.ask("share", stamp="2", groups=both)
    run(made, "a", range(100, 110), begin=longer)
    assert run(made, "b", range(100, 110), begin=longer) == 28
    made.ask("share", stamp="3", groups={})
    assert run(made, "c", range(100, 110), begin=longer) == 0


def test_a_request_shorter_than_the_prefix_shares_what_it_has():
    made = bench()
    run(made, "a", range(100, 120))
    assert made.run(PUBLIC[:15], "salt-b", ticket=ticket("b")) == 0, "it does not hold all of it"


def test_hashes_are_those_of_the_key_material():
    from prefixctl.vllm_plugin.sharing import digest_of_salt

    made = bench()
    tokens = [*PUBLIC, *range(100, 120)]
    request = made.request(tokens, "salt-a", ticket=ticket("a"))
    salts = {0: Salt(digest_of_salt(GROUP)), 4: Salt(digest_of_salt("salt-a"))}
    assert request.block_hashes == block_hashes(
        tokens, block_size=4, hash_function=hash_function("sha256_cbor"), salts=salts
    )


def test_the_event_stream_recomputes_and_carries_no_raw_salt():
    from vllm.distributed.kv_events import BlockStored

    made = bench(events=True)
    run(made, "a", range(100, 120))
    stored = [e for e in made.manager.take_events() if isinstance(e, BlockStored)]
    assert stored
    assert not any(salt in str(stored) for salt in (GROUP, "salt-a"))
    keys = [key for event in stored for key in event.extra_keys]
    tokens = [t for event in stored for t in event.token_ids]
    salts = {index: Salt(key[0]) for index, key in enumerate(keys) if key}
    assert set(salts) == {0, 4}
    expected = block_hashes(
        tokens, block_size=4, hash_function=hash_function("sha256_cbor"), salts=salts
    )
    hashes = [h for event in stored for h in event.block_hashes]
    assert hashes in (expected, [int.from_bytes(h, "big") & ((1 << 64) - 1) for h in expected])


def test_media_and_embeddings_inside_the_public_prefix_disqualify_it():
    made = bench()
    library = made.pool.library

    def shared(**more):
        request = SimpleNamespace(
            prompt_token_ids=[*PUBLIC, 1, 2], prompt_embeds=None, mm_features=[],
            cache_salt="salt-a",
            sampling_params=SimpleNamespace(extra_args={"prefixctl": ticket("a")}),
        )  # fmt: skip
        vars(request).update(more)
        return library.share_of(request).boundary

    def media(offset):
        return [SimpleNamespace(mm_position=SimpleNamespace(offset=offset, length=1))]

    assert shared() == 16
    assert shared(mm_features=media(15)) == 0
    assert shared(mm_features=media(16)) == 16
    assert shared(prompt_embeds=object()) == 0
    assert shared(prompt_token_ids=None) == 0


def test_other_extra_keys_keep_their_place():
    from prefixctl.vllm_plugin.sharing import digest_of_salt

    made = bench()
    library = made.pool.library
    request = made.request([*PUBLIC, *range(10)], "salt-a", ticket=ticket("a"))
    stock = (
        ("lora", "name", "path"),
        ("mm", "id", 0),
        ("cache_salt", "x"),
        ("prompt_embeds", b"e"),
    )
    keys, media = library.extra_keys((stock, 3), request, 0)
    group = ("cache_salt", digest_of_salt(GROUP))
    assert (keys, media) == ((*stock[:2], group, stock[3]), 3)
    assert library.extra_keys((stock[:1], 0), request, 4) == (stock[:1], 0)
    tenant = ("cache_salt", digest_of_salt("salt-a"))
    assert library.extra_keys((stock[:1], 0), request, 16) == ((stock[0], tenant), 0)


def test_shadow_mode_counts_and_shares_nothing():
    made = bench(Sharing.SHADOW)
    tokens = [*PUBLIC, *range(100, 120)]
    request = made.request(tokens, "salt-a", ticket=ticket("a"))
    assert request.block_hashes == bench(Sharing.OFF).request(tokens, "salt-a").block_hashes, (
        "no hash changes"
    )
    made = bench(Sharing.SHADOW)
    run(made, "a", range(100, 120))
    assert run(made, "b", range(100, 120)) == 0
    assert made.pool.governor.counters["shared_requests", "support@1", "shadow"] == 2
    assert run(made, "a", range(100, 120)) == 36


def test_a_pin_under_the_group_salt_keeps_the_blocks_that_tenants_share():
    made = bench(pin_share=0.5)
    made.pin("support@1#group", PUBLIC, salt=str(GROUP))
    run(made, "a", range(100, 120))
    assert made.ask("state")["blocks"]["pinned"] == 4
    for start in range(1000, 4000, 40):
        made.run(range(start, start + 40), "salt-noise")
    assert run(made, "b", range(100, 120)) == 16
    made.check()
