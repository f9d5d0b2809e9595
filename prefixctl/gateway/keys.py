"""API keys of tenants: made at random, stored as digests, read again when the file changes.

A line of the file is a tenant, the SHA-256 of a key in hex, and a note. Keys have 256 random
bits, so a plain digest cannot be searched through.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prefixctl.config import ANONYMOUS, is_name, valid_name
from prefixctl.errors import ConfigError
from prefixctl.yamlfile import read_bytes, utf8_text

KEY_PREFIX = "pfx-"
_DIGEST_CHARS = 64
_BUCKET_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key as the file knows it.

    Attributes:
        tenant: Whose it is.
        digest: SHA-256 of the key, in hex.
        note: Words for people.
    """

    tenant: str
    digest: str = field(repr=False)
    note: str = ""

    @property
    def id(self) -> str:
        """The first characters of the digest: enough to name a key, and to find it."""
        return self.digest[:_BUCKET_CHARS]

    def line(self) -> str:
        """The line of the file."""
        return " ".join(filter(None, (self.tenant, self.digest, self.note)))


def make_key() -> str:
    """A new key; only its digest is kept."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest_key(key: str) -> str:
    """What is stored of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def parse_keys(data: bytes, path: str) -> list[StoredKey]:
    """The keys in a file's bytes; empty lines and those that begin with ``#`` do not count.

    Raises:
        ConfigError: For any other line, with its number.
    """
    found: list[StoredKey] = []
    for number, line in enumerate(utf8_text(data, path, ConfigError).splitlines(), start=1):
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        # Nothing of a wrong line is shown: it may be a key, or the file another secret one.
        fault = key_fault(words) if is_name(words[0]) else "the first word is no name of a tenant"
        if fault:
            raise ConfigError(
                fault, path=path, line=number, hint="TENANT SHA256 NOTE; see `prefixctl keys add`"
            )
        note = words[2].strip() if len(words) > 2 else ""  # noqa: PLR2004 - the third word
        found.append(StoredKey(tenant=words[0], digest=words[1].lower(), note=note))
    return found


def key_fault(words: Sequence[str]) -> str:
    """What is wrong with a tenant's name and the digest behind it; empty if nothing is."""
    try:
        valid_name(words[0])
    except ValueError as exc:
        return str(exc)
    if words[0] == ANONYMOUS:
        return f"'{ANONYMOUS}' is the tenant of requests without a key"
    digest = words[1] if len(words) > 1 else ""
    if len(digest) != _DIGEST_CHARS or set(digest.lower()) - set("0123456789abcdef"):
        return "no SHA-256 in hex behind the tenant; a key itself never stands in this file"
    return ""


class KeyRing:
    """The keys of a file, as it is now.

    A file that can no longer be read leaves the keys as they were, so that a slip of an editor
    does not lock everybody out; `fault` says so.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: If it is missing or wrong.
        """
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._buckets: Mapping[str, Sequence[StoredKey]] = {}
        self.fault = ""
        self._seen = self._stamp()
        self._read()

    def tenant_of(self, key: str) -> str | None:
        """Whose key it is; None for an unknown one. Takes the same time for each of a bucket."""
        digest = digest_key(key)
        found = None
        for stored in self._buckets.get(digest[:_BUCKET_CHARS], ()):
            if hmac.compare_digest(stored.digest, digest):
                found = stored.tenant
        return found

    def refresh(self) -> bool:
        """Read the file again if it changed; True if that brought other keys or another fault."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        before = self.fault
        try:
            self._read()
            self.fault = ""
        except ConfigError as exc:
            self.fault = str(exc)
            if exc.line is None:
                self._seen = None  # not a word of it was read, which may pass: try again
            return self.fault != before
        return True

    def _stamp(self) -> tuple[int, ...] | None:
        """What differs after every change, of who may read it as well."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size

    def _read(self) -> None:
        data = read_bytes(self._path, ConfigError, hint="prefixctl keys add TENANT")
        buckets: dict[str, list[StoredKey]] = {}
        for stored in parse_keys(data, str(self._path)):
            buckets.setdefault(stored.id, []).append(stored)
        self._buckets = buckets
