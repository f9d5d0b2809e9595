"""Start vLLM as the configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from prefixctl.api.tenants import require_secret
from prefixctl.config import Config
from prefixctl.engine.launch import ServeCommand, serve_command
from prefixctl.errors import UsageError
from prefixctl.gateway.identity import check_identity
from prefixctl.gateway.keys import KeyRing
from prefixctl.registry.store import open_store


def build_serve_command(
    config: Config, model: str | None, *, target: str | None = None, port: int | None = None
) -> ServeCommand:
    """The vLLM command for a model or a target.

    Args:
        config: The configuration.
        model: Model name or folder; the target's own if omitted. The name of a target counts as
            that target.
        target: Whose settings (block size, hash, chat template) to serve with. If omitted, the
            target whose model this is, else the only one.
        port: Instead of the configured one.

    Raises:
        UsageError: If the model, or the target to serve it as, is not clear.
        ConfigError: If there is no such target.
    """
    if model is not None and model in config.targets and target is None:
        model, target = None, model
    if target is None:
        target = _target_of(config, model)
    settings = None if target is None else config.target(target)
    if model is None:
        if settings is None:
            raise UsageError(
                "which model?", hint="prefixctl serve MODEL, or name a target with --target"
            )
        model = settings.model
    return serve_command(config, model, target=settings, port=port)


def check_gateway(config: Config, environment: Mapping[str, str]) -> None:
    """Refuse at once what the gateway would only say after the model is loaded.

    Raises:
        ConfigError: If there is no tenancy secret, or no way to know a tenant.
        InputError: If the key file or the registry cannot be used.
        UnreachableError: If the registry cannot be read.
    """
    if not config.gateway.enabled:
        return
    require_secret(config, environment)
    check_identity(config, environment)
    if config.gateway.keys_file is not None:
        KeyRing(config.root / config.gateway.keys_file)
    with closing(open_store(config)) as store:
        store.names()


def _target_of(config: Config, model: str | None) -> str | None:
    """The target that is meant where none is named: the model's own, else the only one."""
    own = [name for name, t in config.targets.items() if model in {t.model, t.tokenizer}]
    if len(own) == 1:
        return own[0]
    if len(config.targets) > 1 and model is not None:
        raise UsageError(
            f"no single target is for '{model}', so block size and hash are not known",
            hint=f"choose with --target: {', '.join(config.targets)}",
        )
    return next(iter(config.targets), None) if len(config.targets) == 1 else None
