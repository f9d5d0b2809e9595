"""Start vLLM as the configuration says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from prefixctl.api.tenants import require_secret
from prefixctl.config import Config
from prefixctl.core.tenancy import Namespace, NamespaceKind
from prefixctl.engine.launch import ServeCommand, serve_command
from prefixctl.errors import InputError, UsageError
from prefixctl.gateway.identity import check_identity
from prefixctl.gateway.keys import KeyRing
from prefixctl.registry.store import open_store
from prefixctl.tiers.folder import TierFolder
from prefixctl.tiers.keyring import EVERYBODY, key_names
from prefixctl.tiers.keyring import KeyRing as TierKeys

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where vLLM puts host memory


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


def check_tiers(config: Config) -> list[str]:
    """Refuse at once what the disk tier would only say after the model is loaded.

    Returns:
        What works, and is hardly meant.

    Raises:
        InputError: If the folder or the key file cannot be used.
    """
    if config.tiers is None:
        return []
    _check_memory(config.tiers.host_gib, config.server.data_parallel_size)
    nvme = config.tiers.nvme
    if nvme is None:
        return []
    _check_folder(config.root / nvme.path)
    if nvme.key_file is None:
        return []
    TierKeys(config.root / nvme.key_file)
    names = key_names(config.root / nvme.key_file)
    if EVERYBODY in names or config.tenancy.sharing != "on":
        return []
    groups = (Namespace(kind=NamespaceKind.GROUP, name=group) for group in config.tenancy.groups)
    return [
        f"group {group.name} has no key in {nvme.key_file}, so what it shares is not stored on the "
        f"disk: prefixctl tiers key --group {group.name}"
        for group in groups
        if group.full_name not in names
    ]


def _check_memory(gib: float, ranks: int) -> None:
    """Host memory is shared between a server's processes, so it lies in a file system of memory.

    Every data-parallel rank has its own.
    """
    try:
        free = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return
    if ranks * gib * 2**30 > free:
        each = f" for each of {ranks} data-parallel ranks" if ranks > 1 else ""
        raise InputError(
            f"tiers.host_gib is {gib:g}{each}, and {free / 2**30:.1f} GiB are free",
            path=SHARED_MEMORY,
            hint="make tiers.host_gib smaller, or the file system larger (docker run --shm-size)",
        )


def _check_folder(folder: Path) -> None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(
            "the tier's folder cannot be used",
            path=str(there),
            hint="give tiers.nvme.path a folder on a local disk that this user may write",
        )
    TierFolder(folder).check_free()


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
