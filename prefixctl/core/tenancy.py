"""Namespaces: who shares cached blocks with whom."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from prefixctl.ids import Salt

MIN_SECRET_BYTES = 16
"""A shorter secret can be guessed."""
GROUP_PREFIX = "group:"


class Secret:
    """Bytes that must not be printed: every way to text is masked."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """The bytes, for cryptography only."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__


class NamespaceKind(StrEnum):
    """What a namespace stands for; a tenant and a group of one name stay apart."""

    TENANT = "tenant"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One circle of requests that may reuse each other's blocks."""

    kind: NamespaceKind
    name: str

    @property
    def full_name(self) -> str:
        """One name for tenants and groups alike: ``shop`` a tenant, ``group:shop`` a group."""
        return f"{GROUP_PREFIX}{self.name}" if self.kind is NamespaceKind.GROUP else self.name

    @classmethod
    def from_full_name(cls, name: str) -> Self:
        """The namespace of a `full_name`; names themselves have no colon."""
        if name.startswith(GROUP_PREFIX):
            return cls(kind=NamespaceKind.GROUP, name=name.removeprefix(GROUP_PREFIX))
        return cls(kind=NamespaceKind.TENANT, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltedNamespace:
    """A namespace as commands work in it.

    Attributes:
        label: Its name for people.
        salt: Its salt, or whom a gateway is told of; None for requests without one.
        suffix: Parts the names of pins in several namespaces, and reveals nobody.
        shared: Prompts that a group shares with it.
        group_salt: The salt that these begin with.
    """

    label: str
    salt: Salt | None
    suffix: str = ""
    shared: frozenset[str] = frozenset()
    group_salt: Salt | None = None

    def salt_of(self, prompt: str) -> Salt | None:
        """The salt of the first block of a prompt's prefix."""
        return self.group_salt if prompt in self.shared else self.salt


UNSALTED = SaltedNamespace(label="no salt", salt=None)


def digest_of_salt(salt: str) -> Salt:
    """What stands for a salt in hashes and on the event stream where prefixes are shared."""
    raw = hashlib.sha256(b"prefixctl-salt-key-1" + salt.encode()).digest()
    return Salt(base64.urlsafe_b64encode(raw[:24]).decode())


def derive_salt(secret: Secret, namespace: Namespace, *, model: str, epoch: int) -> Salt:
    """The cache salt of a namespace.

    HMAC-SHA256 over kind, name, model version and epoch, each with its length in front so that
    no two inputs read alike; base64url without padding: 43 characters, none of which vLLM
    refuses.

    Args:
        secret: At least `MIN_SECRET_BYTES` long.
        namespace: The tenant or share group.
        model: Model and revision as served, so that an upgrade starts a new namespace.
        epoch: Number of the rotation period.

    Raises:
        ValueError: If the secret is too short.
    """
    if len(secret.reveal()) < MIN_SECRET_BYTES:
        raise ValueError(f"the tenancy secret must have at least {MIN_SECRET_BYTES} bytes")
    parts = (namespace.kind.value, namespace.name, model, str(epoch))
    message = b"".join(len(p.encode()).to_bytes(4, "big") + p.encode() for p in parts)
    mac = hmac.digest(secret.reveal(), b"prefixctl-salt-1" + message, "sha256")
    return Salt(base64.urlsafe_b64encode(mac).rstrip(b"=").decode())


def salt_pseudonym(salt: str) -> str:
    """A stable name for a namespace that does not reveal its salt: 12 hex digits of SHA-256."""
    return hashlib.sha256(b"prefixctl-owner-1" + salt.encode()).hexdigest()[:12]


def pseudonym(secret: Secret, tenant: str) -> str:
    """A stable name that reveals nothing: 12 hex digits of an HMAC of a `full_name`."""
    mac = hmac.digest(secret.reveal(), b"prefixctl-pseudonym-1" + tenant.encode(), "sha256")
    return mac.hex()[:12]


def owner_names(
    secret: Secret, namespace: Namespace, *, models: Iterable[str], epochs: Iterable[int]
) -> set[str]:
    """What a tier may call the owner of a namespace's blocks.

    By the pseudonym that the gateway signs for it, and by each of its salts where a request came
    with a salt and without the gateway.

    Args:
        secret: The tenancy secret.
        namespace: The tenant or group.
        models: Model versions.
        epochs: Rotation periods.
    """
    names = {pseudonym(secret, namespace.full_name)}
    periods = tuple(epochs)
    for model in models:
        for epoch in periods:
            names.add(salt_pseudonym(derive_salt(secret, namespace, model=model, epoch=epoch)))
    return names


def key_owners(secret: Secret, name: str, *, models: Iterable[str], epoch: int) -> set[str]:
    """Whose blocks the key of a name in a key file is for: a tenant's, or as `full_name` a group's.

    The epochs before and after count too: salts overlap when they rotate.
    """
    around = (max(epoch - 1, 0), epoch, epoch + 1)
    namespace = Namespace.from_full_name(name)
    return owner_names(secret, namespace, models=tuple(models), epochs=around)
