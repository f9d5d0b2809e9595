"""What a block's bytes depend on beyond its tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from prefixctl.core.prompt import canonical_json
from prefixctl.tiers.block import FORMAT
from prefixctl.tiers.folder import SHORT_NAME


@dataclass(frozen=True)
class Material:
    """Facts that name model, weights, types, layout and engine.

    The engine's block hash knows tokens only: two models have the same keys. Blocks of another
    material are in another folder, and their header names it, so that none is ever served.
    """

    facts: Mapping[str, object]
    known: bytes | None = None

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON of the facts and of the file format, if not known."""
        if self.known is not None:
            return self.known
        return hashlib.sha256(canonical_json({"format": FORMAT, **self.facts})).digest()

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.digest.hex()[:SHORT_NAME]
