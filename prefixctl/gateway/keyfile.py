"""Changes to the file of API keys: whole or not at all, one at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prefixctl.errors import ConfigError, UsageError
from prefixctl.gateway.keys import StoredKey, digest_key, key_fault, make_key, parse_keys
from prefixctl.yamlfile import is_there, read_bytes

_PRIVATE = 0o600


def read_keys(path: Path) -> list[StoredKey]:
    """The keys of a file; none if there is no file yet.

    Raises:
        ConfigError: If it cannot be read.
    """
    return parse_keys(_text(path), str(path))


def add_key(path: Path, tenant: str, note: str = "") -> str:
    """Make a key for a tenant and store its digest; the key itself is told once.

    Raises:
        UsageError: If the tenant's name is none.
        ConfigError: If the file is wrong, or cannot be written.
    """
    key = make_key()
    stored = StoredKey(tenant=tenant, digest=digest_key(key), note=" ".join(note.split()))
    if fault := key_fault((tenant, stored.digest)):
        raise UsageError(fault)
    line = stored.line()
    with _alone(path):
        data = _text(path)
        parse_keys(data, str(path))
        text = data + (b"\n" if data and not data.endswith(b"\n") else b"")
        _write(path, text + line.encode() + b"\n")
    return key


def revoke_keys(path: Path, ids: Sequence[str]) -> list[StoredKey]:
    """Take keys out of the file; comments and all other lines stay.

    Raises:
        UsageError: If an id is not there.
        ConfigError: As `add_key`.
    """
    with _alone(path):
        data = _text(path)
        keys = parse_keys(data, str(path))
        unknown = [i for i in ids if i not in {key.id for key in keys}]
        if unknown:
            raise UsageError(f"no key '{unknown[0]}'", hint="prefixctl keys list")
        gone = [key for key in keys if key.id in ids]
        digests = {key.digest.encode() for key in gone}
        kept = [
            line
            for line in data.splitlines(keepends=True)
            if not (digests & {word.lower() for word in line.split(None, 2)[1:2]})
        ]
        _write(path, b"".join(kept))
    return gone


def _text(path: Path) -> bytes:
    return read_bytes(path, ConfigError) if is_there(path) else b""


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of the file's folder; the system frees it when the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise _unwritable(path, exc) from exc
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(path: Path, data: bytes) -> None:
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, path.stat().st_mode & 0o777 if path.exists() else _PRIVATE)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as exc:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise _unwritable(path, exc) from exc


def _unwritable(path: Path, exc: OSError) -> ConfigError:
    return ConfigError(f"cannot be written: {exc.strerror}", path=str(path))
