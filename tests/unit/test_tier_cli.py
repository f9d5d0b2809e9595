"""`prefixctl tiers`, and what `serve` passes to the engine."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import pytest
from sample import write_prompt
from tiering import OURS, ROOM, body_of, file_of, load, open_store, put
from typer.testing import CliRunner

from prefixctl.api import tiers as api
from prefixctl.api.tenants import group_salt, tenant_salt
from prefixctl.cli.main import app
from prefixctl.config import load_config
from prefixctl.core.tenancy import Secret, key_owners, pseudonym, salt_pseudonym
from prefixctl.core.tiering import TierSettings
from prefixctl.engine.admin import Cleared
from prefixctl.engine.launch import serve_command
from prefixctl.errors import ConfigError, ExitCode, InputError, UnreachableError, UsageError
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.directory import block_name
from prefixctl.tiers.keyring import KeyRing, create_key
from prefixctl.tiers.write import Place

SECRET = "0123456789abcdef-secret"
CONFIG = """\
targets: {tiny: {model: tiny-model, tokenizer: tok, block_size: 16}}
tenancy: {secret_env: PREFIXCTL_TEST_SECRET}
tiers:
  host_gib: 2
  nvme: {path: tier, gib: 1, key_file: keys}
"""
PAGE = """\
# HELP prefixctl_tier_hits_total x
prefixctl_tier_hits_total{engine="0",model_name="m",tier="nvme"} 12.0
prefixctl_tier_hits_created{engine="0",model_name="m",tier="nvme"} 1.7e+09
prefixctl_tier_misses_total{cause="absent",engine="0",model_name="m",tier="nvme"} 3.0
prefixctl_tier_misses_total{cause="checksum",engine="1",model_name="m",tier="nvme"} 2.0
prefixctl_tier_load_seconds_total{engine="0",model_name="m",tier="nvme"} 0.024
prefixctl_tier_evictions_total{engine="0",model_name="m",reason="space",tier="nvme"} 4.0
prefixctl_tier_bytes{engine="0",model_name="m",tier="nvme"} 4096.0
prefixctl_tier_pinned_blocks{engine="0",model_name="m",tier="nvme"} 5.0
prefixctl_tier_bytes{engine="0",model_name="m",tier="host"} 777.0
prefixctl_tier_pinned_blocks{engine="0",model_name="m",tier="host"} 3.0
prefixctl_tier_evictions_total{engine="0",model_name="m",reason="space",tier="host"} 9.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="device"} 400.0
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="disk"} 250.0
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
    assert (server.hits, server.misses) == (12, {"absent": 3, "checksum": 2})
    assert server.cached_tokens == {"device": 400, "disk": 250}
    assert server.load_ms == pytest.approx(2.0)
    assert (server.bytes, server.pinned) == (4096, 5)
    assert (server.evictions, server.host) == ({"space": 4}, {"bytes": 777, "pinned_blocks": 3})
    shown = run(project, "show", "--server", "http://a").output
    assert "device 40.0%, disk 25.0%" in shown
    assert "misses: absent 3, checksum 2" in shown
    assert "pinned: disk 5, host memory 3" in shown
    with pytest.raises(InputError, match="no tier of ours"):
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
    assert "2 blocks removed, 0 left, its key is destroyed" in done.output
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


def test_a_key_is_for_what_comes_by_the_gateway_and_by_salt_alone(project):
    config, secret = config_of(project), Secret(SECRET.encode())
    create_key(project / "keys", "shop")
    names_of = partial(key_owners, secret, models=["tiny-model"], epoch=0)
    ring = KeyRing(project / "keys", names_of=names_of)
    store = open_store(project / "tier", keyring=ring)
    salts = [salt_of(config, secret, "shop", "tiny-model") for salt_of in (tenant_salt, group_salt)]
    names = [pseudonym(secret, "shop"), pseudonym(secret, "group:shop")]
    for chain, owner in enumerate([*names, *map(salt_pseudonym, salts)]):
        assert put(store, 0, chain, owner=owner_tag(owner))
        assert load(store, 0, chain) == "hit"
    stranger = tenant_salt(config, secret, "bank", "tiny-model")
    assert not put(store, 0, 9, owner=owner_tag(salt_pseudonym(stranger)))
    assert store.snapshot()["refused"]["no_key"] == 1


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
    from prefixctl.api.rekey import rekey
    from prefixctl.api.tiers import full_blocks, in_tier
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
    assert in_tier(config, target, measured, new)
    _, renamed = full_blocks(config, target, measured, new)
    assert not set(renamed) & set(hashes)
    buffer = bytearray(store.block_bytes)
    for before, after in zip(hashes, renamed, strict=True):
        assert store.load(after + bytes(4), memoryview(buffer)) is None
        assert bytes(buffer) == body_of(before + bytes(4))
    file = config.root / "tier" / OURS.folder / block_name(keys[1])
    file.unlink()
    broken = rekey(config, groups=["g"], to_epoch=2, environment=environment)
    assert broken.prefixes[0].carried == 1
    assert broken.exit_code is ExitCode.FINDINGS
    with pytest.raises(UsageError, match="nobody to carry over"):
        rekey(config, environment=environment)
