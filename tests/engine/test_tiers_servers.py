"""The disk tier under real servers: encrypted, shared by two of them, and on a full disk."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tiered import (
    BLOCK,
    TOKEN,
    ask_all,
    counted,
    differs,
    kill,
    request_of,
    tiered,
    tiers_of,
    wait_for_files,
    wait_until,
    whole,
)
from tmpfs import small_disk

from prefixctl.api.keys import add_tenant_key
from prefixctl.api.tenants import require_secret, tenant_salt
from prefixctl.api.tiers import purge
from prefixctl.api.versions import bump_prompts, publish_prompts
from prefixctl.config import Config, load_config
from prefixctl.engine.admin import ADMIN_TOKEN, AdminClient, GovernedPrefix
from prefixctl.errors import ExitCode
from prefixctl.tiers.block import HEADER_BYTES, BadBlockError, unpack
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.keyring import KeyRing, create_key

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's, at import
]
WRONG = ("checksum", "foreign", "unreadable")
PIECE_BYTES = 32


def with_nvme(config: Config, **changes) -> Config:
    nvme = config.tiers.nvme.model_copy(update=changes)
    return config.model_copy(update={"tiers": config.tiers.model_copy(update={"nvme": nvme})})


def test_encrypted_blocks_show_nothing_and_only_the_right_key_hits(model_folder, tmp_path):
    keys, tier = tmp_path / "keys", tmp_path / "tier"
    create_key(keys, "*")
    config = with_nvme(tiers_of(model_folder, tmp_path), key_file=keys)
    requests = [request_of(seed, 200) for seed in range(12)]
    with tiered(config, tmp_path / "first.log") as (engine, server):
        cold = ask_all(engine, requests)
        tokens = [engine.tokenize(request) for request in requests]
        wait_for_files(tier, sum(len(ids) // 32 for ids in tokens))
        kill(server)
    files = sorted(tier.rglob("*.kv"))
    written = b"".join(path.read_bytes() for path in files)
    assert all(word not in written for word in texts_and_tokens(requests, tokens))
    pieces = [piece for path in files for piece in plain_pieces(path, KeyRing(keys))]
    assert len(set(pieces)) > len(files), "the decrypted blocks are empty, so the search is blind"
    assert not any(piece in written for piece in random.Random(1).sample(pieces, 100))
    with tiered(config, tmp_path / "second.log") as (engine, _):
        warm = ask_all(engine, requests)
        assert whole(warm), "the right key did not hit after a restart"
        assert not any(differs(a, b) for a, b in zip(cold, warm, strict=True))
        assert counted(engine, "misses", "foreign") == 0
        keys.unlink()
        create_key(keys, "*")
        other = ask_all(engine, requests)
        assert not any(differs(a, b) for a, b in zip(cold, other, strict=True))
        assert not whole(other), "blocks of another key were served"
        ask_all(engine, requests[:1])
        wait_until(lambda: counted(engine, "misses", "foreign") > 10, "misses are not counted", 5)


def texts_and_tokens(requests, tokens) -> Iterator[bytes]:
    """What of a prompt could be found in a file: its words, and its token ids as numbers."""
    for request, ids in zip(requests, tokens, strict=True):
        text = request.messages[0]["content"]
        yield text[:40].encode()
        yield text[-40:].encode()
        for kind in ("<4i", "<4q", ">4i", ">4q"):
            yield struct.pack(kind, *ids[40:44])


def plain_pieces(path: Path, keyring: KeyRing) -> list[bytes]:
    """Pieces of a block's keys and values, as the engine has them in memory."""
    data = path.read_bytes()
    plain = keyring.decrypt(unpack(data), data[HEADER_BYTES:])
    assert plain.count(0) < len(plain) // 2
    return [plain[at : at + PIECE_BYTES] for at in range(0, len(plain) - PIECE_BYTES, 8192)]


def test_a_full_disk_stops_stores_until_there_is_room_and_new_weights_for_good(
    model_folder, tmp_path
):
    with small_disk(tmp_path / "disk", "6m") as disk:
        config = tiers_of(model_folder, tmp_path, environment={"VLLM_SERVER_DEV_MODE": "1"})
        config = with_nvme(config, path=disk / "tier")
        requests = [request_of(seed, 200) for seed in range(12)]
        log = tmp_path / "server.log"
        with tiered(config, log) as (engine, server):
            cold = ask_all(engine, requests)
            again = ask_all(engine, requests)
            assert not any(differs(a, b) for a, b in zip(cold, again, strict=True))
            wait_until(
                lambda: counted(engine, "refused_blocks", "disk_full") > 0,
                "a full disk is not counted",
            )
            assert shutil.disk_usage(disk).free < 2**20
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            stored = counted(engine, "stored_blocks")

            def recovered() -> bool:
                ask_all(engine, [request_of(random.randrange(10**6), 200)])
                return counted(engine, "stored_blocks") > stored + 20

            wait_until(recovered, "stores did not come back with the room")
            last = ask_all(engine, requests)
            assert not any(differs(a, b) for a, b in zip(cold, last, strict=True))
            assert counted(engine, "misses", "checksum") == 0
            check_new_weights(engine, server.url)
    said = [line for line in log.read_text().splitlines() if "neither serves nor stores" in line]
    assert len(said) == 1
    assert "reload_weights was called on the workers" in said[0]


def check_new_weights(engine, url: str) -> None:
    """Once weights are loaded again in a running server its disk tier is left alone."""
    requests = [request_of(seed, 200) for seed in (201, 202)]

    def post(path: str, **more) -> None:
        httpx.post(f"{url}/{path}", timeout=60, trust_env=False, **more).raise_for_status()

    def reset() -> None:
        post("reset_prefix_cache", params={"reset_external": "true"})

    before = counted(engine, "stored_blocks")
    wanted = before + sum(c.use.prompt_tokens // BLOCK for c in ask_all(engine, requests))
    wait_until(lambda: counted(engine, "stored_blocks") >= wanted, "they were not stored")
    reset()
    ask_all(engine, [request_of(99, 40)])  # the first request after a reset may miss
    assert whole(ask_all(engine, requests))
    assert counted(engine, "closed") == 0
    post("collective_rpc", json={"method": "reload_weights"})
    reset()
    assert [c.use.cached_tokens for c in ask_all(engine, requests)] == [0, 0]
    wait_until(lambda: counted(engine, "closed") == 1, "the page does not say it")
    assert counted(engine, "refused_blocks", 'reason="weights_replaced"') > 0


def test_two_servers_share_a_folder_under_load(model_folder, tmp_path):
    gib = 0.02
    config = with_nvme(tiers_of(model_folder, tmp_path), gib=gib)
    requests = [request_of(seed, 200) for seed in range(24)]
    tier = tmp_path / "tier"
    with tiered(config, tmp_path / "one.log") as (one, _):
        cold = ask_all(one, requests)
        assert all(c.use.cached_tokens == 0 for c in cold)
        with tiered(config, tmp_path / "two.log") as (two, _):
            found = ask_all(two, requests[-3:])
            assert any(c.use.cached_tokens for c in found), "the other's blocks were not found"
            watch = Watch(tier)
            with ThreadPoolExecutor(2) as pool:
                outcomes = list(pool.map(lambda s: load(*s, requests, cold), ((one, 1), (two, 2))))
            most = watch.stop()
            assert outcomes == [[], []], "answers differ"
            for engine in (one, two):
                ask_all(engine, requests[:1])
                assert counted(engine, "hits") > 0
                assert all(counted(engine, "misses", cause) == 0 for cause in WRONG)
            assert counted(one, "evictions", "space") + counted(two, "evictions", "space") > 0
    assert 0.5 * gib * 2**30 < most <= gib * 2**30


GATED = """\
prompts: templates
lock: below.lock.yaml
registry: {{path: tiers/registry.db}}
targets:
  tiered: {{model: model, dtype: float32, block_size: 32, parameters: {{index_name: north}}}}
tenancy: {{secret_file: secret}}
gateway: {{enabled: true, keys_file: tiers/keys}}
server:
  served_model_name: m
  max_model_len: 2048
  kv_cache_gib: 1
  extra_args: ["--enforce-eager", "--num-gpu-blocks-override", "100"]
tiers:
  host_gib: 0.005
  nvme: {{path: {tier}, gib: 0.03, key_file: {keys}}}
"""
PINNED = 6


class Tenants:
    """Requests of tenants through the gateway."""

    def __init__(self, config: Config) -> None:
        self._keys = {tenant: add_tenant_key(config, tenant) for tenant in ("shop", "bank")}
        self.url = ""

    def cached(self, tenant: str, seed: int, words: int = 200) -> int:
        """The cached tokens of a request."""
        body = {"model": "m", "max_tokens": 1, "messages": request_of(seed, words).messages}
        headers = {"authorization": f"Bearer {self._keys[tenant]}"}
        path = f"{self.url}/v1/chat/completions"
        answer = httpx.post(path, json=body, headers=headers, timeout=120, trust_env=False)
        answer.raise_for_status()
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_pins_hold_in_every_tier_and_purge_reaches_every_tier(model_folder, tmp_path):
    keys, tier = tmp_path / "keys", tmp_path / "tier"
    for tenant in ("shop", "bank"):
        create_key(keys, tenant)
    path = model_folder / "below.yaml"
    path.write_text(GATED.format(tier=tier, keys=keys))
    config = load_config(path)
    secret = require_secret(config, os.environ)
    salt = tenant_salt(config, secret, "shop", config.target("tiered").model_version)
    bump_prompts(config, ["short-greeting"], reason="first", author="test")
    publish_prompts(config, by="test")
    tenants = Tenants(config)
    prefix = GovernedPrefix(name="p@1#x", token_ids=tuple(range(300, 300 + PINNED * 32)), salt=salt)
    with (
        tiered(config, tmp_path / "server.log") as (engine, _),
        AdminClient(engine.url, TOKEN) as admin,
    ):
        tenants.url = engine.url
        assert [p.pinned for p in admin.pin(prefix)] == [PINNED]
        for seed in range(40):  # more than host memory and the disk have room for
            tenants.cached("bank" if seed % 4 else "shop", seed)
        below = admin.state()[0].raw["below"]
        assert (below["host"]["pinned"], below["nvme"]["pinned"]) == (PINNED, PINNED)
        for each in ("host", "nvme"):
            assert counted(engine, "evictions", "space", each) > 0, f"{each} was never short"
            assert counted(engine, "pinned_blocks", tier=each) == PINNED
        assert tenants.cached("shop", 36) > 0
        assert tenants.cached("bank", 39) > 0
        copies = [file.read_bytes() for file in tier.rglob("*.kv")]
        done = purge(
            config, "shop", group=False, servers=[engine.url],
            environment={**os.environ, ADMIN_TOKEN: TOKEN},
        )  # fmt: skip
        assert (done.exit_code, done.left, done.key_destroyed) == (ExitCode.OK, 0, True)
        assert min(done.blocks, done.device[engine.url], done.host[engine.url]) >= PINNED
        state = admin.state()[0]
        assert state.blocks["pinned"] == 0
        assert {tier: told["pinned"] for tier, told in state.raw["below"].items()} == {
            "host": 0, "nvme": 0,
        }  # fmt: skip
        assert tenants.cached("shop", 36) == 0
        assert tenants.cached("bank", 39) > 0
        assert readable(copies, KeyRing(keys)) < len(copies), "a stolen copy can still be read"
        tenants.cached("bank", 39)
        wait_until(lambda: counted(engine, "refused_blocks", "no_key") > 0, "no key, and stored", 5)


def readable(copies: list[bytes], keyring: KeyRing) -> int:
    """How many blocks can be decrypted."""
    found = 0
    for data in copies:
        with suppress(BadBlockError):
            keyring.decrypt(unpack(data), data[HEADER_BYTES:])
            found += 1
    return found


def load(engine, seed, requests, cold) -> list[int]:
    """Ask in another order again and again; the requests whose answers were wrong."""
    choose, wrong = random.Random(seed), []
    for _ in range(25):
        index = choose.randrange(len(requests))
        answer = engine.complete_tokens(requests[index], max_tokens=6)
        if differs(cold[index], answer):
            wrong.append(index)
    return wrong


class Watch:
    """Looks all the time at how much a folder holds, while nobody moves a file."""

    def __init__(self, path: Path) -> None:
        self._directory = TierDirectory(path)
        self._most, self._stopped = 0, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(0.05):
            with self._directory.locked():
                size = sum(size for _, size, _ in self._directory.files())
            self._most = max(self._most, size)

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        self._directory.close()
        return self._most
