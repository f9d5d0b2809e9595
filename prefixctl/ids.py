"""Names for the plain values that travel between modules."""

from __future__ import annotations

from typing import NewType

TokenId = NewType("TokenId", int)
BlockHash = NewType("BlockHash", bytes)
"""An engine's hash of one full KV block and all blocks before it."""
PrefixKey = NewType("PrefixKey", str)
"""The registry's identity of a prompt's content on one target: ``pk1:`` and 64 hex digits."""
Digest = NewType("Digest", str)
"""``sha256:`` and 64 hex digits."""
PromptName = NewType("PromptName", str)
TenantRef = NewType("TenantRef", str)


class Salt(str):
    """A cache salt as sent to the engine. Its repr is masked, so that no record shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Salt(***)"


class OnBehalf(Salt):
    """Instead of a salt: whom an operator's request is for, where a gateway knows the salts.

    ``tenant:NAME`` or ``group:NAME``.
    """

    __slots__ = ()
