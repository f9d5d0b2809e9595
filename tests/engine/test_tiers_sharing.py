"""Precompute, warm, rekey, retire and purge where a group shares its public prefix."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import httpx
import pytest
from gated import wait_until_shared
from tiered import BLOCK, TOKEN, counted, tiered, wait_until

from prefixctl.api.keys import add_tenant_key
from prefixctl.api.precompute import precompute_prefixes
from prefixctl.api.rekey import rekey
from prefixctl.api.tenants import group_salt, require_secret
from prefixctl.api.tiers import purge
from prefixctl.api.versions import bump_prompts, publish_prompts
from prefixctl.api.warm import warm_prefixes
from prefixctl.config import Config, load_config
from prefixctl.core.tenancy import pseudonym, salt_pseudonym
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.errors import ExitCode, NothingToDoError
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.folder import TierFolder
from prefixctl.tiers.keyring import create_key
from prefixctl.tiers.read import read_headers

pytestmark = pytest.mark.vllm

PROJECT = """\
prompts: templates
lock: {work}/sharing.lock.yaml
registry: {{path: {work}/registry.db}}
targets:
  tiered:
    model: model
    dtype: float32
    block_size: 32
    parameters: {{index_name: north}}
    servers: ["http://127.0.0.1:1"]
tenancy:
  secret_file: secret
  sharing: on
  groups: {{shop: {{tenants: [acme, bolt], prompts: [kefu-zh, short-greeting]}}}}
gateway: {{enabled: true, keys_file: {work}/gateway-keys}}
server:
  served_model_name: m
  max_model_len: 2048
  kv_cache_gib: 1
  extra_args: ["--enforce-eager", "--num-gpu-blocks-override", "100"]
tiers:
  host_gib: 0.02
  nvme: {{path: {work}/tier, gib: 0.25, key_file: {work}/keys}}
"""
NAMES = ["kefu-zh", "short-greeting"]
ENVIRONMENT = {**os.environ, ADMIN_TOKEN: TOKEN}


class Clients:
    """Tenants who name the prompt by its key."""

    def __init__(self, config: Config) -> None:
        self._keys = {tenant: add_tenant_key(config, tenant) for tenant in ("acme", "bolt")}
        self.url = ""

    def cached(self, tenant: str) -> int:
        words = [{"role": "user", "content": f"{tenant} asks: " + "where is my parcel? " * 30}]
        body = {"model": "m", "max_tokens": 1, "prefix_key": "kefu-zh", "messages": words}
        headers = {"authorization": f"Bearer {self._keys[tenant]}"}
        path = f"{self.url}/v1/chat/completions"
        answer = httpx.post(path, json=body, headers=headers, timeout=120, trust_env=False)
        answer.raise_for_status()
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def stored(folder: Path) -> Counter[tuple[bytes, str]]:
    """How many blocks each owner has of each version."""
    tier = TierFolder(folder)
    found, damaged = read_headers(tier.files(*tier.materials()), None, None)
    assert not damaged
    return Counter((header.owner, header.label) for header, _ in found)


def test_a_groups_prefix_is_precomputed_shared_carried_over_and_purged(model_folder, tmp_path):
    tier = tmp_path / "tier"
    path = model_folder / "sharing.yaml"
    path.write_text(PROJECT.format(work=tmp_path))
    config = load_config(path)
    for name in ("group:shop", "acme", "bolt"):
        create_key(tmp_path / "keys", name)
    bump_prompts(config, NAMES, reason="first", author="test")
    publish_prompts(config, by="test")
    secret = require_secret(config, os.environ)
    model = config.target("tiered").model_version
    group = owner_tag(salt_pseudonym(group_salt(config, secret, "shop", model)))
    with pytest.raises(NothingToDoError, match="holds none of these"):
        warm_prefixes(config, ["kefu-zh"], from_tier=True, environment=ENVIRONMENT, groups=["shop"])

    report = precompute_prefixes(config, NAMES, groups=["shop"], environment=ENVIRONMENT)
    assert report.exit_code is ExitCode.OK
    assert {p.prompt: p.status for p in report.prefixes} == {
        "kefu-zh": "stored", "short-greeting": "too short",
    }  # fmt: skip
    blocks = next(p.blocks for p in report.prefixes if p.blocks)
    held = Counter({(group, "kefu-zh@1"): blocks})
    assert stored(tier) == held, "tails were stored, or under another name"
    again = precompute_prefixes(config, NAMES, tenants=["acme"], environment=ENVIRONMENT)
    assert {p.prompt: p.status for p in again.prefixes}["kefu-zh"] == "was stored"

    clients = Clients(config)
    with tiered(config, tmp_path / "server.log") as (engine, _):
        clients.url = engine.url
        wait_until_shared(engine.url, processes=1)
        warmed = warm_prefixes(
            config, NAMES, from_tier=True, groups=["shop"], servers=[engine.url],
            environment=ENVIRONMENT,
        )  # fmt: skip
        assert warmed.exit_code is ExitCode.OK
        outcome = next(o for o in warmed.outcomes if o.prompt == "kefu-zh")
        assert outcome.was_resident, "it was computed, not loaded"
        assert counted(engine, "hits") >= outcome.expected_hit_tokens // BLOCK
        assert [clients.cached(tenant) for tenant in ("acme", "bolt")] == [blocks * BLOCK] * 2
        tenants = {owner_tag(pseudonym(secret, tenant)) for tenant in ("acme", "bolt")}
        owners = {*tenants, owner_tag(pseudonym(secret, "group:shop"))}  # the warm-up's tail
        wait_until(
            lambda: {owner for owner, _ in stored(tier) - held} == owners, "tails were not stored"
        )
        later = stored(tier) - held
        tails = Counter({name: count for name, count in later.items() if name[0] in tenants})

        carried = rekey(config, NAMES, groups=["shop"], environment=ENVIRONMENT)
        assert carried.exit_code is ExitCode.OK
        (fresh,) = stored(tier) - held - later
        assert fresh[1] == "kefu-zh@1"
        assert fresh[0] not in {group, *owners}, "the next epoch's name is another"
        assert stored(tier)[fresh] == blocks

        done = purge(config, "shop", group=True, servers=[engine.url], environment=ENVIRONMENT)
        assert (done.exit_code, done.left) == (ExitCode.OK, 0)
        assert done.blocks >= 2 * blocks
        assert min(done.device[engine.url], done.host[engine.url]) >= blocks
        assert stored(tier) == tails, "a purged group's neighbour lost its own"
        assert clients.cached("acme") == 0
