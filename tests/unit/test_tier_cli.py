"""`prefixctl tiers`, and what `serve` passes to the engine."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from sample import write_prompt
from tiering import OURS, ROOM, body_of, file_of, key_of, load, open_store, put
from typer.testing import CliRunner

from prefixctl.api import tiers as api
from prefixctl.api.holdings import holdings
from prefixctl.api.serve import check_tiers
from prefixctl.api.tenants import group_salt, tenant_salt
from prefixctl.cli.main import app
from prefixctl.config import load_config
from prefixctl.core.tenancy import Secret, key_owners, pseudonym, salt_pseudonym
from prefixctl.core.tiering import TierSettings
from prefixctl.engine.admin import Cleared
from prefixctl.engine.launch import serve_command
from prefixctl.engine.release import engine_release
from prefixctl.engine.tiers import configuration_digest
from prefixctl.errors import (
    ConfigError,
    ExitCode,
    InputError,
    RegistryError,
    UnreachableError,
    UsageError,
)
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.folder import block_name
from prefixctl.tiers.keyring import KeyRing, create_key, destroy_key
from prefixctl.tiers.material import Material
from prefixctl.tiers.serving import note_serving
from prefixctl.tiers.write import Place

SECRET = "0123456789abcdef-secret"
CONFIG = """\
targets: {tiny: {model: tiny-model, tokenizer: tok, block_size: 16}}
tenancy: {secret_env: PREFIXCTL_TEST_SECRET}
tiers:
  host_gib: 2
  nvme: {path: tier, gib: 1, key_file: keys}
"""
PLAIN = CONFIG.replace(", key_file: keys", "")
PAGE = """\
# HELP prefixctl_tier_hits_total x
prefixctl_tier_hits_total{engine="0",model_name="m",tier="nvme"} 12.0
prefixctl_tier_hits_created{engine="0",model_name="m",tier="nvme"} 1.7e+09
prefixctl_tier_misses_total{cause="absent",engine="0",model_name="m",tier="nvme"} 3.0
prefixctl_tier_misses_total{cause="checksum",engine="1",model_name="m",tier="nvme"} 2.0
prefixctl_tier_misses_total{cause="foreign",engine="1",model_name="m",tier="nvme"} 0.0
prefixctl_tier_load_latency_seconds_bucket{engine="0",le="0.001",model_name="m",tier="nvme"} 4.0
prefixctl_tier_load_latency_seconds_bucket{engine="0",le="0.003",model_name="m",tier="nvme"} 8.0
prefixctl_tier_load_latency_seconds_bucket{engine="0",le="+Inf",model_name="m",tier="nvme"} 8.0
prefixctl_tier_load_latency_seconds_bucket{engine="1",le="0.001",model_name="m",tier="nvme"} 0.0
prefixctl_tier_load_latency_seconds_bucket{engine="1",le="0.003",model_name="m",tier="nvme"} 4.0
prefixctl_tier_load_latency_seconds_bucket{engine="1",le="+Inf",model_name="m",tier="nvme"} 4.0
prefixctl_tier_store_latency_seconds_bucket{engine="0",le="+Inf",model_name="m",tier="nvme"} 0.0
prefixctl_tier_evictions_total{engine="0",model_name="m",reason="space",tier="nvme"} 4.0
prefixctl_tier_bytes{engine="0",model_name="m",tier="nvme"} 4096.0
prefixctl_tier_bytes{engine="1",model_name="m",tier="nvme"} 4096.0
prefixctl_tier_pinned_blocks{engine="0",model_name="m",tier="nvme"} 5.0
prefixctl_tier_bytes{engine="0",model_name="m",tier="host"} 777.0
prefixctl_tier_bytes{engine="1",model_name="m",tier="host"} 23.0
prefixctl_tier_pinned_blocks{engine="0",model_name="m",tier="host"} 3.0
prefixctl_tier_evictions_total{engine="0",model_name="m",reason="space",tier="host"} 9.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="device"} 400.0
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="disk"} 250.0
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="host"} 0.0
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "prefixctl.yaml").write_text(CONFIG)
    monkeypatch.setenv("PREFIXCTL_TEST_SECRET", SECRET)
    return tmp_path


@pytest.fixture
def project_with_prompt(tmp_path, tokenizer_dir, monkeypatch):
    monkeypatch.setenv("PREFIXCTL_TEST_SECRET", SECRET)
    text = CONFIG.replace("tokenizer: tok", f"tokenizer: {tokenizer_dir}")
    (tmp_path / "prefixctl.yaml").write_text(text.replace(", key_file: keys", ""))
    write_prompt(tmp_path / "templates" / "support")
    return load_config(tmp_path / "prefixctl.yaml")


def config_of(project, text=CONFIG):
    (project / "prefixctl.yaml").write_text(text)
    return load_config(project / "prefixctl.yaml")


def run(project, *words):
    return CliRunner().invoke(app, ["--config", str(project / "prefixctl.yaml"), "tiers", *words])


def test_show_names_models_versions_and_the_next_victims(project):
    store = open_store(project / "tier")
    for number in range(3):
        put(store, number, label="support@3")
    put(store, 0, 1)
    report = api.show_tiers(config_of(project), victims=2)
    (model,) = report.view.models
    assert (model.folder, model.blocks, model.bytes) == (OURS.folder, 4, 4 * ROOM)
    assert model.versions == {"support@3": 3}
    assert len(report.view.victims) == 2
    assert report.view.victims[0].depth == 2, "a parent would go before its child"
    assert len(list((project / "tier").rglob("*.kv"))) == 4, "looking has removed something"
    done = run(project, "show")
    assert done.exit_code == 0
    assert "support@3 3" in done.output
    assert "next to go:" in done.output
    data = json.loads(run(project, "show", "--format", "json").output)
    assert data["view"]["models"][0]["blocks"] == 4


def test_show_counts_files_that_are_no_blocks(project):
    store = open_store(project / "tier")
    put(store, 0)
    file_of(store, 0).write_bytes(b"x")
    assert api.show_tiers(config_of(project)).view.models[0].broken == 1


def test_show_without_a_tier_is_told(project):
    with pytest.raises(InputError, match="no tier here"):
        api.show_tiers(config_of(project))
    with pytest.raises(ConfigError, match="no NVMe tier"):
        api.show_tiers(config_of(project, "prompts: templates\n"))


def test_show_reads_a_servers_counters(project, monkeypatch):
    open_store(project / "tier")

    class FakeEngine:
        def __init__(self, url):
            self.page = PAGE if url == "http://a" else "vllm:prompt_tokens_total{} 1\n"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def metrics_page(self):
            return self.page

    monkeypatch.setattr(api, "HttpEngine", FakeEngine)
    (server,) = api.show_tiers(config_of(project), servers=["http://a"]).servers
    disk, host = server.tiers["nvme"], server.tiers["host"]
    assert (disk.hits, disk.misses) == (12, {"absent": 3, "checksum": 2})
    assert server.cached_tokens == {"device": 400, "disk": 250}
    assert (disk.load.count, disk.store) == (12, None)
    assert disk.load.median_ms == pytest.approx(1.5)
    assert disk.load.p99_ms == pytest.approx(2.97)
    assert (disk.bytes, host.bytes) == (4096, 800), "engines share the disk, not their memory"
    assert (disk.pinned, host.pinned) == (5, 3)
    assert (disk.evictions, host.evictions) == ({"space": 4}, {"space": 9})
    shown = run(project, "show", "--server", "http://a").output
    assert "device 40.0%, disk 25.0%" in shown
    assert "misses: absent 3, checksum 2" in shown
    assert "0 blocks, 3 pinned" in shown
    assert "load: median 1.50 ms, p99 2.97 ms a block" in shown
    said = json.loads(run(project, "show", "--server", "http://a", "--format", "json").output)
    assert said["servers"][0]["tiers"]["nvme"]["misses"] == {"absent": 3, "checksum": 2}
    with pytest.raises(InputError, match="tells of no tier"):
        api.show_tiers(config_of(project), servers=["http://b"])


def test_purge_removes_a_tenant_and_its_key_and_nobody_else(project):
    config, secret = config_of(project), Secret(SECRET.encode())
    assert run(project, "key", "shop").exit_code == 0
    assert run(project, "key", "bank").exit_code == 0
    assert (project / "keys").stat().st_mode & 0o077 == 0
    store = open_store(project / "tier")
    put(store, 0, owner=owner_tag(pseudonym(secret, "shop")))
    salt = tenant_salt(config, secret, "shop", "tiny-model")
    put(store, 1, owner=owner_tag(salt_pseudonym(salt)))
    put(store, 0, 1, owner=owner_tag(pseudonym(secret, "bank")))
    done = run(project, "purge", "shop")
    assert done.exit_code == 0
    assert "2 files removed, 0 blocks left, its key is destroyed" in done.output
    assert not file_of(store, 0).exists()
    assert file_of(store, 0, 1).exists()
    keys = (project / "keys").read_text()
    assert "shop" not in keys
    assert "bank" in keys
    again = api.purge(config, "shop", group=False, environment={"PREFIXCTL_TEST_SECRET": SECRET})
    assert (again.blocks, again.key_destroyed) == (0, False)


def test_purging_a_group_takes_its_blocks_of_every_epoch_and_no_tenants(project):
    config, secret = config_of(project), Secret(SECRET.encode())
    store = open_store(project / "tier")
    create_key(project / "keys", "bank")
    at_gateway = [pseudonym(secret, name) for name in ("group:shop", "shop")]
    epochs = (config.tenancy.model_copy(update={"epoch": e}) for e in (0, 1))
    later = [config.model_copy(update={"tenancy": tenancy}) for tenancy in epochs]
    salts = [group_salt(each, secret, "shop", "tiny-model") for each in later]
    salts.append(tenant_salt(config, secret, "shop", "tiny-model"))
    for chain, owner in enumerate([*at_gateway, *map(salt_pseudonym, salts)]):
        put(store, 0, chain, owner=owner_tag(owner))
    assert run(project, "purge", "shop", "--group").exit_code == 0
    left = [chain for chain in range(5) if file_of(store, 0, chain).exists()]
    assert left == [1, 4], "a tenant of the same name lost its blocks, or the group kept some"


@pytest.mark.parametrize(("name", "salt_of"), [("shop", tenant_salt), ("group:shop", group_salt)])
def test_a_key_is_for_what_comes_by_the_gateway_and_by_salt_alone(project, name, salt_of):
    config, secret = config_of(project), Secret(SECRET.encode())
    create_key(project / "keys", name)
    names_of = partial(key_owners, secret, models=["tiny-model"], epoch=0)
    ring = KeyRing(project / "keys", names_of=names_of)
    store = open_store(project / "tier", keyring=ring)
    salt = salt_of(config, secret, "shop", "tiny-model")
    for chain, owner in enumerate([pseudonym(secret, name), salt_pseudonym(salt)]):
        assert put(store, 0, chain, owner=owner_tag(owner))
        assert load(store, 0, chain) == "hit"
    (other,) = {tenant_salt, group_salt} - {salt_of}
    strangers = [
        other(config, secret, "shop", "tiny-model"),
        tenant_salt(config, secret, "bank", "tiny-model"),
    ]
    for chain, stranger in enumerate(strangers, start=8):
        assert not put(store, 0, chain, owner=owner_tag(salt_pseudonym(stranger)))
    assert store.snapshot()["refused"]["no_key"] == 2


def test_tenants_and_groups_have_keys_of_their_own(project):
    for words in (["shop"], ["shop", "--group"], ["*"]):
        assert run(project, "key", *words).exit_code == 0
    lines = (project / "keys").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["shop", "group:shop", "*"]
    for words in (["group:shop"], ["two words"], ["*", "--group"], [""]):
        assert isinstance(run(project, "key", *words).exception, UsageError)


class FakeServers:
    """A test double for `AdminClient`: servers that hold blocks, one of which is still in use."""

    def __init__(self, config, secret, *, busy=1, down=()):
        salt = tenant_salt(config, secret, "shop", "tiny-model")
        self.expected = {pseudonym(secret, "shop"), salt_pseudonym(salt)}
        self.busy, self.down, self.asked = busy, down, []

    def __call__(self, url, token):
        assert token == "token"
        return FakeServer(self, url)


class FakeServer:
    def __init__(self, servers, url):
        self.servers, self.url = servers, url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def purge(self, owners):
        assert set(owners) > self.servers.expected
        if self.url in self.servers.down:
            raise UnreachableError(f"{self.url} does not answer")
        self.servers.asked.append(self.url)
        first = self.servers.asked.count(self.url) == 1
        left = self.servers.busy if first or self.servers.busy > 1 else 0
        return [Cleared(device=3 if first else 0, host=2 if first else 1, left=left)]


ENVIRONMENT = {"PREFIXCTL_TEST_SECRET": SECRET, "PREFIXCTL_ADMIN_TOKEN": "token"}
SERVED = CONFIG.replace("block_size: 16", 'block_size: 16, servers: ["http://a", "http://b"]')


def test_purge_asks_the_targets_servers_until_nothing_is_in_use(project, monkeypatch):
    config = config_of(project, SERVED)
    servers = FakeServers(config, Secret(SECRET.encode()))
    monkeypatch.setattr(api, "AdminClient", servers)
    create_key(project / "keys", "shop")
    open_store(project / "tier")
    done = api.purge(config, "shop", group=False, environment=ENVIRONMENT)
    assert servers.asked == ["http://a", "http://a", "http://b", "http://b"]
    assert done.device == done.host == {"http://a": 3, "http://b": 3}
    assert (done.left, done.exit_code) == (0, ExitCode.OK)


def test_purge_says_what_is_left_and_who_did_not_answer(project, monkeypatch):
    config = config_of(project, SERVED)
    open_store(project / "tier")
    create_key(project / "keys", "shop")
    stuck = FakeServers(config, Secret(SECRET.encode()), busy=2)
    monkeypatch.setattr(api, "AdminClient", stuck)
    done = api.purge(
        config, "shop", group=False, environment=ENVIRONMENT, servers=["http://a"],
        patience_seconds=0.0,
    )  # fmt: skip
    assert (done.left, done.exit_code) == (2, ExitCode.FINDINGS)
    down = FakeServers(config, Secret(SECRET.encode()), down=("http://b",))
    monkeypatch.setattr(api, "AdminClient", down)
    monkeypatch.setenv("PREFIXCTL_ADMIN_TOKEN", "token")
    told = run(project, "purge", "shop")
    assert told.exit_code == ExitCode.UNREACHABLE
    assert "http://a: 3 blocks of the device, 3 of host memory" in told.output
    assert "http://b: not known what it holds" in told.output


def test_purge_makes_no_folder_and_needs_no_disk_where_servers_run(project, monkeypatch):
    secret = Secret(SECRET.encode())
    without = SERVED.partition("tiers:")[0]
    config = config_of(project, without)
    monkeypatch.setattr(api, "AdminClient", FakeServers(config, secret))
    done = api.purge(config, "shop", group=False, environment=ENVIRONMENT)
    assert (done.device["http://a"], done.blocks, done.exit_code) == (3, 0, ExitCode.OK)
    create_key(project / "keys", "shop")
    assert api.purge(config_of(project), "shop", group=False, environment=ENVIRONMENT).key_destroyed
    assert not (project / "tier").exists()
    with pytest.raises(ConfigError, match="no NVMe tier"):
        api.purge(
            config_of(project, CONFIG.partition("tiers:")[0]), "shop", group=False,
            environment=ENVIRONMENT,
        )  # fmt: skip


def test_purge_without_the_servers_token_changes_nothing(project):
    create_key(project / "keys", "shop")
    store = open_store(project / "tier")
    put(store, 0, owner=owner_tag(pseudonym(Secret(SECRET.encode()), "shop")))
    with pytest.raises(ConfigError, match="no admin token"):
        api.purge(
            config_of(project, SERVED), "shop", group=False,
            environment={"PREFIXCTL_TEST_SECRET": SECRET},
        )  # fmt: skip
    assert "shop" in (project / "keys").read_text()
    assert file_of(store, 0).exists()


def test_retire_names_a_version(project):
    store = open_store(project / "tier")
    assert run(project, "retire", "support@2").exit_code == 0
    assert run(project, "retire", "support@2").exit_code == 0
    assert run(project, "retire", "support@1").exit_code == 0
    assert store.directory.retired() == {"support@1", "support@2"}
    assert run(project, "retire", "support@2", "--undo").exit_code == 0
    assert run(project, "retire", "support@2", "--undo").exit_code == 0
    assert store.directory.retired() == {"support@1"}
    with pytest.raises(UsageError):
        api.retire(config_of(project), "two\nlines")


@pytest.mark.parametrize(
    "word", ["support", "support@", "support@x", "@2", "a/b@2", "s@" + "9" * 5000]
)
def test_retire_takes_a_version_and_nothing_else(project, word):
    open_store(project / "tier")
    assert isinstance(run(project, "retire", word).exception, UsageError)


def test_retire_makes_no_folder(project):
    assert isinstance(run(project, "retire", "support@2").exception, InputError)
    assert not (project / "tier").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "localhost:8000", "ftp://a", "http://", "x"])
def test_what_is_no_address_is_a_usage_error(project, address):
    open_store(project / "tier")
    failed = run(project, "show", "--server", address).exception
    assert isinstance(failed, UsageError)
    assert (failed.message, failed.hint) == ("no address of a server", "give http://HOST:PORT")


def test_serve_passes_the_tiers_with_absolute_paths(project):
    config = config_of(project)
    arguments = serve_command(config, "tiny-model", target=config.target("tiny")).arguments
    passed = json.loads(arguments[arguments.index("--kv-transfer-config") + 1])
    assert passed["kv_connector"] == "GovernedConnector"
    extra = passed["kv_connector_extra_config"]
    assert extra["cpu_bytes_to_use"] == 2 * 2**30
    settings = TierSettings.from_json(extra["prefixctl"])
    assert settings.nvme.path == str(project / "tier")
    assert settings.nvme.key_file == str(project / "keys")
    assert settings.nvme.max_bytes == 2**30
    assert SECRET not in " ".join(arguments)
    with pytest.raises(ValueError, match="unknown tier settings: speed"):
        TierSettings.from_json({**extra["prefixctl"], "speed": 1})


def test_without_tiers_serve_passes_nothing(project):
    config = config_of(project, "prompts: templates\n")
    assert "--kv-transfer-config" not in serve_command(config, "tiny-model").arguments


def test_vllms_object_store_is_passed_on_and_nothing_else(project):
    text = CONFIG + "  shared: {type: obj, bucket: kv}\n"
    arguments = serve_command(config_of(project, text), "tiny-model").arguments
    passed = json.loads(arguments[arguments.index("--kv-transfer-config") + 1])
    tiers = passed["kv_connector_extra_config"]["secondary_tiers"]
    assert [t["type"] for t in tiers] == ["NvmeTier", "obj"]
    assert tiers[1]["bucket"] == "kv"
    with pytest.raises(ConfigError, match=r"tiers\.shared\.type"):
        serve_command(config_of(project, CONFIG + "  shared: {type: p2p}\n"), "tiny-model")


@pytest.mark.parametrize("name", ["LMCacheConnectorV1", "MooncakeConnector"])
def test_connectors_that_are_not_known_to_honour_salts_are_refused(project, name):
    value = json.dumps({"kv_connector": name})
    given = f"server: {{extra_args: ['--kv-transfer-config', '{value}']}}\n"
    with pytest.raises(ConfigError, match="not known to keep tenants apart"):
        serve_command(config_of(project, given), "tiny-model")
    ungoverned = given.replace("server: {", "server: {governed: false, ")
    assert serve_command(config_of(project, ungoverned), "tiny-model")
    with pytest.raises(ConfigError, match="both name a connector"):
        serve_command(config_of(project, CONFIG + ungoverned), "tiny-model")


def test_exit_codes_of_precompute():
    from prefixctl.api.precompute import PrecomputeReport

    def report(*states):
        prefixes = tuple(SimpleNamespace(status=s) for s in states)
        return PrecomputeReport(prefixes=prefixes, manifest="m", seconds=0.0).exit_code

    assert report("stored", "was stored", "too short") is ExitCode.OK
    assert report("stored", "not stored") is ExitCode.FINDINGS
    assert report("drift", "not stored") is ExitCode.DRIFT


def test_rekey_carries_live_prefixes_over_to_the_next_epoch(project_with_prompt):
    from prefixctl.api.holdings import full_blocks, holdings
    from prefixctl.api.rekey import rekey
    from prefixctl.api.versions import bump_prompts, publish_prompts
    from prefixctl.prompts.target import load_target, measure
    from prefixctl.registry.worktree import governed_prompts

    config, secret = project_with_prompt, Secret(SECRET.encode())
    environment = {"PREFIXCTL_TEST_SECRET": SECRET}
    bump_prompts(config, reason="first", author="test")
    publish_prompts(config, by="test")
    target = load_target(config, "tiny")
    measured = measure(governed_prompts(config)[0], target, config.prefix_cache)
    salt = group_salt(config, secret, "g", "tiny-model")
    _, hashes = full_blocks(config, target, measured, salt)
    assert len(hashes) > 2
    store = open_store(config.root / "tier", blocks=2 * len(hashes))
    note_serving(
        config.root / "tier", configuration_digest(config, config.target("tiny")), OURS.folder
    )
    keys = [each + bytes(4) for each in hashes]
    for at, each in enumerate(keys):
        parent = keys[at - 1] if at else b""
        assert store.put(Place(key=each, parent=parent, depth=at, label="v"), body_of(each))
    report = rekey(config, groups=["g"], environment=environment)
    assert report.exit_code is ExitCode.OK
    assert [(p.blocks, p.carried) for p in report.prefixes] == [(len(hashes), len(hashes))]
    later = config.model_copy(
        update={"tenancy": config.tenancy.model_copy(update={"epoch": 1})}
    ).at(config.root)
    new = group_salt(later, secret, "g", "tiny-model")
    assert holdings(config, "tiny", environment).has(full_blocks(config, target, measured, new)[1])
    _, renamed = full_blocks(config, target, measured, new)
    assert not set(renamed) & set(hashes)
    buffer = bytearray(store.block_bytes)
    for before, after in zip(hashes, renamed, strict=True):
        assert store.load(after + bytes(4), memoryview(buffer)) is None
        assert bytes(buffer) == body_of(before + bytes(4))
    file = config.root / "tier" / OURS.folder / block_name(keys[1])
    file.unlink()
    with pytest.raises(UsageError, match="one epoch at a time"):
        rekey(config, groups=["g"], to_epoch=2, environment=environment)
    broken = rekey(config, groups=["g"], to_epoch=1, environment=environment)
    assert broken.prefixes[0].carried == 1
    assert broken.exit_code is ExitCode.FINDINGS
    with pytest.raises(UsageError, match="nobody to carry over"):
        rekey(config, environment=environment)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"servers": ("http://127.0.0.1:1",)}, True),
        ({"dtype": "float32"}, False),
        ({"revision": "b"}, False),
        ({"weights_fingerprint": "sha256:other"}, False),
    ],
)
def test_a_target_knows_its_own_blocks_and_no_other_models(project, change, known):
    config = config_of(project, PLAIN)
    facts = {"weights": "sha256:ours", "engine": engine_release()}
    store = open_store(project / "tier", material=Material(facts))
    assert holdings(config, "tiny", {}) is None, "no server has noted it"
    digest = configuration_digest(config, config.target("tiny"))
    note_serving(project / "tier", digest, store.directory.materials()[0])
    changed = config.target("tiny").model_copy(update=change)
    config.targets["tiny"] = changed
    assert (holdings(config, "tiny", {}) is not None) is known


@pytest.mark.parametrize("fact", ["weights", "engine"])
def test_blocks_of_other_weights_or_another_vllm_are_not_the_targets(project, fact):
    config = config_of(project, PLAIN)
    config.targets["tiny"] = target = config.target("tiny").model_copy(
        update={"weights_fingerprint": "sha256:new"}
    )
    facts = {"weights": "sha256:new", "engine": engine_release(), fact: "vllm 0.1"}
    store = open_store(project / "tier", material=Material(facts))
    digest = configuration_digest(config, target)
    note_serving(project / "tier", digest, store.directory.materials()[0])
    assert holdings(config, "tiny", {}) is None


def test_serve_says_at_once_that_the_disk_tier_cannot_be_used(project):
    config = config_of(project)
    with pytest.raises(InputError, match="keys cannot be read"):
        check_tiers(config)
    create_key(project / "keys", "shop")
    assert check_tiers(config) == []
    (project / "keys").chmod(0o644)
    with pytest.raises(InputError, match="open to other users"):
        check_tiers(config)
    (project / "tier").write_text("a file")
    with pytest.raises(InputError, match="folder cannot be used"):
        check_tiers(config)
    assert check_tiers(config_of(project, "prompts: templates\n")) == []


def test_serve_warns_of_a_group_that_shares_and_has_no_key(project):
    sharing = (
        "  sharing: on\n  groups: {few: {tenants: [a]}, all: {tenants: ['*']}}\n"
        "gateway: {enabled: true, keys_file: k}\n"
    )
    tenancy = "tenancy: {secret_env: PREFIXCTL_TEST_SECRET}\n"
    text = CONFIG.replace(tenancy, "tenancy:\n  secret_env: PREFIXCTL_TEST_SECRET\n" + sharing)
    config = config_of(project, text)
    create_key(project / "keys", "group:few")
    (warning,) = check_tiers(config)
    assert "group all has no key" in warning
    create_key(project / "keys", "*")
    assert check_tiers(config) == []


def test_a_version_that_gc_removes_goes_first_and_one_that_is_live_again_does_not(
    project_with_prompt,
):
    from prefixctl.api.versions import (
        bump_prompts,
        publish_prompts,
        remove_expired,
        rollback_prompt,
    )

    config, start = project_with_prompt, datetime(2026, 1, 1, tzinfo=UTC)
    file = config.root / "templates" / "support" / "system.md"
    words = file.read_text()
    for number in range(1, 4):
        file.write_text(f"{words}\nEdition {number}.\n")
        bump_prompts(config, reason="edited", author="test", now=start)
        publish_prompts(config, by="test", now=start)
    later = start + timedelta(days=30)
    assert not (config.root / "tier").exists()
    store = open_store(config.root / "tier")
    assert len(remove_expired(config, now=later, dry_run=True).versions) == 1
    assert store.directory.retired() == frozenset()
    assert len(remove_expired(config, now=later).versions) == 1
    assert store.directory.retired() == {"support@1"}
    api.retire(config, "support@2")
    assert rollback_prompt(config, "support", by="test", now=later).live == 2
    assert store.directory.retired() == {"support@1"}


PLAN = """\
prefixes:
  - {prompt: support@1, groups: [g], tenants: [t]}
  - {prompt: support}
"""


def test_a_plan_says_what_is_computed_and_for_whom(project_with_prompt, tmp_path):
    from prefixctl.api.holdings import full_blocks
    from prefixctl.api.precompute import precompute_prefixes
    from prefixctl.api.versions import bump_prompts, publish_prompts
    from prefixctl.prompts.target import load_target, measure
    from prefixctl.registry.worktree import governed_prompts
    from prefixctl.sources.plan import load_plan

    config, secret = project_with_prompt, Secret(SECRET.encode())
    bump_prompts(config, reason="first", author="test")
    publish_prompts(config, by="test")
    target = load_target(config, "tiny")
    measured = measure(governed_prompts(config)[0], target, config.prefix_cache)
    salts = [group_salt(config, secret, "g", "tiny-model"),
             tenant_salt(config, secret, "t", "tiny-model"), None]  # fmt: skip
    store = open_store(config.root / "tier", blocks=1000)
    digest = configuration_digest(config, config.target("tiny"))
    note_serving(config.root / "tier", digest, OURS.folder)
    for salt in salts:
        for at, each in enumerate(full_blocks(config, target, measured, salt)[1]):
            key = each + bytes(4)
            assert store.put(Place(key=key, depth=at), body_of(key))
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    manifest = config.registry_path.with_name("precomputed.json")
    manifest.write_text('{"prefixes": [7]}')
    environment = {"PREFIXCTL_TEST_SECRET": SECRET}
    report = precompute_prefixes(config, plan=load_plan(file), environment=environment)
    assert [(p.prompt, p.version, p.namespace, p.status) for p in report.prefixes] == [
        ("support", 1, "group g", "was stored"),
        ("support", 1, "tenant t", "was stored"),
        ("support", 1, "no salt", "was stored"),
    ]
    written = json.loads(manifest.read_text())["prefixes"]
    assert [entry["namespace"] for entry in written] == ["group g", "tenant t", "no salt"]
    with pytest.raises(RegistryError):
        precompute_prefixes(config, ["support@9"], environment=environment)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prefixes: []", "prefixes"),
        ("prefixes: [{prompt: a, group: g}]", "group"),
        ("prefixes: [{prompt: a, groups: [a/b]}]", "groups"),
        ("[", "yaml"),
        ("", "prefixes"),
    ],
)
def test_a_file_that_is_no_plan_is_told(tmp_path, text, words):
    from prefixctl.sources.plan import load_plan

    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_plan(tmp_path / "plan.yaml")
    assert str(tmp_path) in str(caught.value)
    assert words in str(caught.value).lower()


def test_a_plan_stands_alone(project):
    config = str(project / "prefixctl.yaml")
    words = ["--config", config, "precompute", "--plan", "p.yaml", "--group", "g"]
    assert isinstance(CliRunner().invoke(app, words).exception, UsageError)


def test_what_a_server_could_not_read_is_not_held(project):
    config = config_of(project, PLAIN)
    digest = configuration_digest(config, config.target("tiny"))
    for name in ("shop", "*"):
        create_key(project / "keys", name)
    hashes = [key_of(number)[:-4] for number in range(3)]
    tag = owner_tag("somebody")
    store = open_store(project / "tier", keyring=KeyRing(project / "keys"))
    for number in range(3):
        put(store, number, owner=tag)
    note_serving(project / "tier", digest, OURS.folder)
    assert not holdings(config, "tiny", {}).has(hashes), "encrypted, and the server has no keys"
    encrypting = config_of(project)
    assert holdings(encrypting, "tiny", {}).has(hashes)
    assert not holdings(encrypting, "tiny", {}).has([*hashes, b"another"])
    destroy_key(project / "keys", "*")
    assert not holdings(encrypting, "tiny", {}).has(hashes), "nobody has the key any more"
    create_key(project / "keys", "*")
    old = time.time() - 169 * 3600
    os.utime(file_of(store, 1), (old, old))
    assert not holdings(encrypting, "tiny", {}).has(hashes), "one is too old"
    os.utime(file_of(store, 1))
    assert holdings(encrypting, "tiny", {}).has(hashes)
    file_of(store, 2).write_bytes(b"")
    assert not holdings(encrypting, "tiny", {}).has(hashes), "one is damaged"


def test_serve_takes_no_folder_of_others_for_the_tier(project):
    for name in ("lost+found", "temporary"):
        assert check_tiers(config_of(project, PLAIN)) == []
        (project / "tier" / name).mkdir(parents=True)
    (project / "tier" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        check_tiers(config_of(project, PLAIN))
    with pytest.raises(ConfigError, match="path"):
        config_of(project, PLAIN.replace("path: tier", 'path: ""'))


def test_serve_wants_host_memory_that_the_machine_has(project):
    with pytest.raises(InputError, match="/dev/shm"):
        check_tiers(config_of(project, PLAIN.replace("host_gib: 2", "host_gib: 900000")))
    ranks = PLAIN.replace("host_gib: 2", "host_gib: 0.1") + "server: {data_parallel_size: 100000}\n"
    with pytest.raises(InputError, match="each of 100000 data-parallel ranks"):
        check_tiers(config_of(project, ranks))


def test_purge_proves_nothing_where_no_tier_is(project):
    done = run(project, "purge", "shop")
    assert done.exit_code == ExitCode.UNREACHABLE
    assert "is the disk mounted?" in done.output
    open_store(project / "tier")
    done = run(project, "purge", "shop")
    assert done.exit_code == ExitCode.OK
    assert "nothing of shop was found" in done.output
    for name in ("*", "group:shop", "two words"):
        assert isinstance(run(project, "purge", name).exception, UsageError)


def test_precompute_runs_an_engine_that_nobody_else_reaches(project, monkeypatch):
    from prefixctl.api import precompute

    seen = {}
    monkeypatch.setattr(precompute, "Server", lambda command, **more: seen.update(
        command=command, **more))  # fmt: skip
    text = PLAIN + (
        "server: {host: 0.0.0.0, kv_events_endpoint: 'tcp://*:5557', api_server_count: 2}\n"
        "prefix_cache: {pins: {live: true}}\n"
        "gateway: {enabled: true, keys_file: k}\n"
    )
    config = config_of(project, text)
    precompute._engine(config, "tiny", Secret(b"0123456789abcdef"), project / "log")
    arguments = " ".join(seen["command"].arguments)
    assert seen["command"].host == "127.0.0.1"
    assert "--host 127.0.0.1" in arguments
    assert "5557" not in arguments
    assert "gateway" not in arguments
    assert "--kv-transfer-config" in arguments
    assert "PREFIXCTL_TARGET" not in {**seen["environment"], **seen["command"].environment}
    assert seen["environment"]["PREFIXCTL_ENDS_WITH"] == str(os.getpid())


def test_what_an_engine_finds_stored_is_written_down_as_stored(project_with_prompt, monkeypatch):
    from prefixctl.api import precompute
    from prefixctl.api.holdings import full_blocks
    from prefixctl.api.versions import bump_prompts, publish_prompts
    from prefixctl.prompts.target import load_target, measure
    from prefixctl.registry.worktree import governed_prompts

    config = project_with_prompt
    bump_prompts(config, reason="first", author="test")
    publish_prompts(config, by="test")
    target = load_target(config, "tiny")
    measured = measure(governed_prompts(config)[0], target, config.prefix_cache)
    store = open_store(config.root / "tier", blocks=1000)
    for at, each in enumerate(full_blocks(config, target, measured, None)[1]):
        key = each + bytes(4)
        assert store.put(Place(key=key, depth=at), body_of(key))

    @contextmanager
    def fake_engine(config, *_):
        digest = configuration_digest(config, config.target("tiny"))
        note_serving(config.root / "tier", digest, OURS.folder)
        yield SimpleNamespace(url="http://127.0.0.1:1")

    monkeypatch.setattr(precompute, "_engine", fake_engine)
    report = precompute.precompute_prefixes(config, environment={})
    assert [p.status for p in report.prefixes] == ["was stored"]
    (written,) = json.loads(precompute.manifest_path(config).read_text())["prefixes"]
    assert (written["status"], written["model"]) == ("was stored", OURS.folder)
