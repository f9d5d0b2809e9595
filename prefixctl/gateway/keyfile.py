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
from prefixctl.yamlfile import is_there, read_bytes, utf8_text

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
    path = _real(path)
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
    path = _real(path)
    with _alone(path):
        data = _text(path)
        keys = parse_keys(data, str(path))
        unknown = [i for i in ids if i not in {key.id for key in keys}]
        if unknown:
            raise UsageError(f"no key '{unknown[0]}'", hint="prefixctl keys list")
        gone = [key for key in keys if key.id in ids]
        digests = {key.digest for key in gone}
        lines = utf8_text(data, str(path), ConfigError).splitlines(keepends=True)
        _write(path, "".join(line for line in lines if _digest(line) not in digests).encode())
    return gone


def _digest(line: str) -> str:
    """The digest in a line, its words and its end being what `parse_keys` takes for them."""
    words = line.split(None, 2)
    return words[1].lower() if len(words) > 1 and not words[0].startswith("#") else ""


def _real(path: Path) -> Path:
    """Where a link leads: a change must not leave what it leads to as it was."""
    return Path(os.path.realpath(path))


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
            _keep_rights(descriptor, path)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as exc:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise _unwritable(path, exc) from exc


def _sync(folder: Path) -> None:
    """A revoked key must not come back after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _keep_rights(descriptor: int, path: Path) -> None:
    """Whoever could read the file can read the new one, a server of another user first of all."""
    if not path.exists():
        os.fchmod(descriptor, _PRIVATE)
        return
    old, new = path.stat(), os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777)


def _unwritable(path: Path, exc: OSError) -> ConfigError:
    return ConfigError(f"cannot be written: {exc.strerror}", path=str(path))
