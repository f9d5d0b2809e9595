"""How a server gets its gateway, and when it does not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from gateway_fakes import Shop

from prefixctl.api.serve import build_serve_command, check_gateway
from prefixctl.config import Config, GatewayConfig, load_config
from prefixctl.engine.launch import GATE, GATEWAY, SCHEDULER
from prefixctl.errors import ConfigError
from prefixctl.vllm_plugin.gateway_site import open_site
from prefixctl.vllm_plugin.guard import UngovernableError
from prefixctl.vllm_plugin.shelf import Shelf


@pytest.fixture
def config(project: Path) -> Config:
    return Shop(project).config


def environment(config: Config, **more: str) -> dict[str, str]:
    command = build_serve_command(config, None, target="tiny")
    secret = {"PREFIXCTL_SECRET": "a-secret-for-tests-only"}
    return {**command.environment, **secret, **more}


def start(env: dict[str, str]) -> str:
    """The reason why a server with this environment does not start; empty if it does."""
    try:
        site = open_site(env, lambda *_: lambda _: None)
    except UngovernableError as exc:
        return str(exc)
    site.ledger.close()
    return ""


def test_serve_starts_the_gateway_in_the_place_of_the_gate(config: Config) -> None:
    arguments = build_serve_command(config, None, target="tiny").arguments
    assert [arguments[i + 1] for i, a in enumerate(arguments) if a == "--middleware"] == [GATEWAY]
    assert SCHEDULER in arguments
    assert start(environment(config)) == ""


def test_without_it_nothing_changes(config: Config) -> None:
    off = config.model_copy(update={"gateway": GatewayConfig()})
    arguments = build_serve_command(off, None, target="tiny").arguments
    assert GATE in arguments
    assert GATEWAY not in arguments


def test_a_gateway_needs_a_governed_server_and_a_target(config: Config) -> None:
    ungoverned = config.server.model_copy(update={"governed": False})
    with pytest.raises(ConfigError, match="governed"):
        build_serve_command(config.model_copy(update={"server": ungoverned}), None, target="tiny")
    with pytest.raises(ConfigError, match="needs a target"):
        build_serve_command(config.model_copy(update={"targets": {}}), "some-model")


def test_what_is_missing_stops_the_server(config: Config) -> None:
    good = environment(config)
    assert "PREFIXCTL_TARGET are not set" in start({**good, "PREFIXCTL_TARGET": ""})
    assert "no target 'other'" in start({**good, "PREFIXCTL_TARGET": "other"})
    assert "no tenancy secret" in start({**good, "PREFIXCTL_SECRET": ""})
    short = start({**good, "PREFIXCTL_SECRET": "short-secret"})
    assert "shorter than 16 bytes" in short
    assert "short-secret" not in short


def test_a_key_file_that_is_wrong_stops_the_server(config: Config) -> None:
    good = environment(config)
    (config.root / "keys").write_text("acme pfx-acme\n")
    assert "keys:1" in start(good)
    (config.root / "keys").unlink()
    assert "keys add" in start(good)


def test_a_registry_that_is_wrong_stops_the_server(config: Config) -> None:
    good = environment(config)
    config.registry_path.write_bytes(b"no database " * 100)
    assert "not a registry, or damaged" in start(good)
    config.registry_path.unlink()
    assert "no registry here yet" in start(good)


def rewritten(config: Config, gateway: str) -> Config:
    file = config.root / "prefixctl.yaml"
    text = file.read_text()
    file.write_text(text[: text.index("gateway:")] + gateway)
    return load_config(file)


def test_a_gateway_that_can_tell_nobody_stops_the_server(config: Config) -> None:
    nobody = rewritten(config, "gateway: {enabled: true}\n")
    assert "no way to know a tenant" in start(environment(nobody))
    anonymous = rewritten(config, "gateway: {enabled: true, missing_tenant: anonymous}\n")
    assert start(environment(anonymous)) == ""


def test_serve_says_so_before_the_model_is_loaded(config: Config) -> None:
    good = environment(config)
    check_gateway(config, good)
    (config.root / "keys").unlink()
    with pytest.raises(ConfigError, match="keys"):
        check_gateway(config, good)
    nobody = rewritten(config, "gateway: {enabled: true}\n")
    with pytest.raises(ConfigError, match="no way to know a tenant"):
        check_gateway(nobody, good)
    with pytest.raises(ConfigError, match="no tenancy secret"):
        check_gateway(config, {})


def test_a_tenant_header_needs_the_peers_own_address(config: Config) -> None:
    header = "gateway: {enabled: true, tenant_header: X-Tenant, proxies: [10.0.0.1]}\n"
    proxied = rewritten(config, header)
    assert start(environment(proxied)) == ""
    for believed in ("127.0.0.1", "*"):
        told = start(environment(proxied, FORWARDED_ALLOW_IPS=believed))
        assert "FORWARDED_ALLOW_IPS must be 'none'" in told


@pytest.mark.parametrize(
    "settings",
    [
        {"tenant_header": "X-Tenant"},
        {"proxies": ["10.0.0.1"]},
        {"tenant_header": "X-Tenant", "proxies": ["10.0.0.300"]},
        {"tenant_header": "X Tenant", "proxies": ["10.0.0.1"]},
        {"rates": {"requests_per_minute": 0}},
        {"tenant_rates": {"a/b": {}}},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="GatewayConfig"):
        GatewayConfig.model_validate(settings)


def test_a_secret_that_changes_while_the_server_runs_parts_nobody(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gateway and scheduler have the old one: groups must not get salts of the new one."""
    monkeypatch.setenv("PREFIXCTL_SECRET", "a-secret-for-tests-only")
    shelf = Shelf(config, "tiny")
    before = shelf._namespaces()
    monkeypatch.setenv("PREFIXCTL_SECRET", "another-secret-of-the-tests")
    assert shelf._namespaces() == before != Shelf(config, "tiny")._namespaces()
