"""Start vLLM as the configuration says."""

from __future__ import annotations

from prefixctl.config import Config
from prefixctl.engine.launch import ServeCommand, serve_command
from prefixctl.errors import UsageError


def build_serve_command(
    config: Config, model: str | None, *, target: str | None = None, port: int | None = None
) -> ServeCommand:
    """The vLLM command for a model or a target.

    Args:
        config: The configuration.
        model: Model name or folder; the target's own if omitted. The name of a target counts as
            that target.
        target: Whose settings (block size, hash, chat template) to serve with. If omitted, the
            target whose model this is, if there is just one.
        port: Instead of the configured one.

    Raises:
        UsageError: If neither model nor target is given and the configuration has not just one.
        ConfigError: If there is no such target.
    """
    if model is not None and model in config.targets and target is None:
        model, target = None, model
    if target is None:
        fitting = [name for name, t in config.targets.items() if model is None or t.model == model]
        if len(fitting) == 1:
            target = fitting[0]
    settings = None if target is None else config.target(target)
    if model is None:
        if settings is None:
            raise UsageError(
                "which model?", hint="prefixctl serve MODEL, or name a target with --target"
            )
        model = settings.model
    return serve_command(config, model, target=settings, port=port)


def unenforced_settings(config: Config) -> list[str]:
    """Settings that somebody wrote down, and that nothing enforces yet."""
    evict = config.prefix_cache.evict
    named = []
    if evict.policy != "lru":
        named.append(f"prefix_cache.evict.policy: {evict.policy}")
    if "max_block_mb" in evict.model_fields_set:
        named.append(f"prefix_cache.evict.max_block_mb: {evict.max_block_mb}")
    if "fallback" in config.prefix_cache.model_fields_set:
        named.append(f"prefix_cache.fallback: {config.prefix_cache.fallback}")
    return named
