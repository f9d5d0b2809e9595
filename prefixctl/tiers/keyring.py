"""Encryption keys, one for each tenant or group, in a file that the operator keeps."""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from prefixctl.errors import InputError
from prefixctl.tiers.block import NO_OWNER, BadBlockError, Header, MissCause, owner_tag
from prefixctl.tiers.files import FILE_MODE, lock_file, temporary_name, write_privately

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
NamesOf = Callable[[str], Iterable[str]]
EVERYBODY = "*"
"""The name of the key for blocks of nobody, and of owners that have none of their own."""


class KeyRing:
    """AES-256-GCM with the keys of a file of lines ``NAME BASE64``.

    The file is read again when it changes, so a key that is taken out of it is out of use at
    once: without it the blocks of its owner cannot be read by anybody any more.
    """

    def __init__(self, path: Path, *, names_of: NamesOf = lambda name: (name,)) -> None:
        """Read the keys.

        Args:
            path: The file.
            names_of: What an owner is called in the tier, from its name in the file.

        Raises:
            InputError: If the file is missing, open to other users, or no list of keys.
        """
        self.path = path
        self._names_of = names_of
        self._lock = Lock()
        self._stamp: tuple[int, ...] | None = None
        self._ciphers: dict[bytes, AESGCM] = {}
        self.readings = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if it is another one than before; errors as at the start."""
        try:
            status = self.path.stat()
        except OSError as exc:
            raise InputError(
                f"the tier's keys cannot be read: {exc.strerror}", path=str(self.path)
            ) from exc
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
        with self._lock:
            if stamp != self._stamp:
                if stat.S_IMODE(status.st_mode) & 0o077:
                    raise InputError(
                        "the tier's keys are open to other users",
                        path=str(self.path),
                        hint="chmod 600",
                    )
                self._ciphers = _ciphers(_read(self.path), self._names_of)
                self._stamp = stamp
                self.readings += 1

    def _cipher(self, owner: bytes) -> AESGCM | None:
        """An owner's own, else the one for everybody else."""
        return self._ciphers.get(owner) or self._ciphers.get(NO_OWNER)

    def has_key(self, owner: bytes) -> bool:
        """Whether an owner's blocks can be encrypted and read."""
        return self._cipher(owner) is not None

    def encrypt(self, header: Header, body: bytes | memoryview) -> tuple[bytes, bytes]:
        """A fresh nonce, and the bytes with their tag.

        Raises:
            KeyError: If there is no key for the owner.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        cipher = self._cipher(header.owner)
        if cipher is None:
            raise KeyError(header.owner)
        return nonce, cipher.encrypt(nonce, body, header.authenticated())

    def decrypt(self, header: Header, stored: bytes | memoryview) -> bytes:
        """The plain bytes.

        Raises:
            BadBlockError: ``foreign`` if the block is not encrypted or its key is not here.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - optional, as below

        cipher = self._cipher(header.owner)
        if cipher is None or header.nonce is None:
            raise BadBlockError(MissCause.FOREIGN, useless=False)
        try:
            return cipher.decrypt(header.nonce, stored, header.authenticated())
        except InvalidTag:
            raise BadBlockError(MissCause.FOREIGN, useless=False) from None


def key_names(path: Path) -> list[str]:
    """The names that have a key.

    Raises:
        InputError: If the file is missing, or no list of keys.
    """
    return list(_read(path))


def create_key(path: Path, name: str) -> None:
    """Add a fresh key to the file, which is made if there is none.

    Raises:
        InputError: If the name has a key already, or cannot be a name.
    """
    if not name or name != "".join(name.split()):
        raise InputError(f"'{name}' is no name of a tenant or group: no white space")
    with _locked(path):
        keys = _read(path) if path.exists() else {}
        if name in keys:
            raise InputError(f"'{name}' has a key already", path=str(path))
        _write(path, {**keys, name: secrets.token_bytes(KEY_BYTES)})


def destroy_key(path: Path, name: str) -> bool:
    """Take a key out of the file; what it encrypted is lost. False if there was none.

    When this returns the key is off the disk as far as files go: no copy of it is left beside.

    Raises:
        InputError: If the file cannot be read, or has the key all the same.
    """
    with _locked(path):
        keys = _read(path)
        _remove_leftovers(path)
        if name not in keys:
            return False
        _write(path, {n: k for n, k in keys.items() if n != name})
        if name in _read(path):
            raise InputError(f"the key of '{name}' is still there", path=str(path))
        return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Exclude everybody else who changes the file; it is replaced, so another one is locked."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as exc:
        raise InputError(
            f"the tier's keys cannot be changed: {exc.strerror}", path=str(path)
        ) from exc
    try:
        try:
            lock_file(descriptor)
        except TimeoutError as exc:
            raise InputError(
                f"the tier's keys are {exc.strerror}",
                path=str(path),
                hint="a process that was stopped keeps them; let that go on, or end it",
            ) from exc
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, keys: dict[str, bytes]) -> None:
    """Replace the file; the caller holds the lock."""
    lines = [f"{name} {base64.b64encode(key).decode()}\n" for name, key in keys.items()]
    _remove_leftovers(path)
    try:
        write_privately(path, "".join(lines), durable=True)
    except OSError as exc:
        raise InputError(
            f"the tier's keys cannot be written: {exc.strerror}", path=str(path)
        ) from exc


def _remove_leftovers(path: Path) -> None:
    """Remove what a writer that was killed has left: it holds keys."""
    name = re.compile(re.escape(temporary_name(path, "")) + "[0-9a-f]+")
    for entry in list(path.parent.iterdir()):
        if name.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError("the tier's keys cannot be read", path=str(path)) from exc
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(" ")
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES or name in keys:
            raise InputError(
                "no line of a name and a key, or a name for the second time",
                path=str(path),
                line=number,
                hint=f"NAME and {KEY_BYTES} bytes in base64; '{EVERYBODY}' for blocks of nobody",
            )
        keys[name] = key
    return keys


def _ciphers(keys: dict[str, bytes], names_of: NamesOf) -> dict[bytes, AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - optional
    except ImportError as exc:
        raise InputError(
            "encryption needs the `cryptography` library", hint="pip install 'prefixctl[tiers]'"
        ) from exc
    ciphers: dict[bytes, AESGCM] = {}
    for name, key in keys.items():
        tags = [NO_OWNER] if name == EVERYBODY else [owner_tag(n) for n in names_of(name)]
        ciphers |= dict.fromkeys(tags, AESGCM(key))
    return ciphers
