"""The seams between the pure part and the world."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from prefixctl.core.usage import CacheUse
from prefixctl.ids import Salt


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A rendered governed prompt: what a client sends to ``/v1/chat/completions``.

    Attributes:
        messages: OpenAI-style messages.
        tools: OpenAI-style tool schemas, or None for a request without tools.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What came back for one request.

    Attributes:
        use: Prompt tokens, cached tokens, time to first token.
        token_ids: The generated tokens, where they were asked for.
        logprobs: For each generated token the log-probabilities of the best candidates, by id.
    """

    use: CacheUse
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[Mapping[int, float], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says of itself; None where it does not say.

    Attributes:
        models: Served model names.
        ranks: Data-parallel ranks.
        max_model_len: Longest request in tokens.
        block_size: Tokens in a KV block.
        prefix_caching: Whether the prefix cache is on.
        hash_algorithm: The block hash's name.
    """

    models: tuple[str, ...]
    ranks: int = 1
    max_model_len: int | None = None
    block_size: int | None = None
    prefix_caching: bool | None = None
    hash_algorithm: str | None = None


class Lease(Protocol):
    """Keeps two workers from doing the same work at once."""

    def hold(self, key: str) -> AbstractContextManager[None]:
        """Wait for the lease of a key; it is let go of when the ``with`` block is left."""


class Engine(Protocol):
    """One server that answers chat requests from a prefix cache."""

    @property
    def url(self) -> str:
        """Its base address, for messages."""

    def facts(self) -> ServerFacts:
        """What the server says of itself."""

    def complete(
        self,
        request: ChatRequest,
        *,
        max_tokens: int = 1,
        salt: Salt | None = None,
        rank: int | None = None,
    ) -> Completion:
        """Run one greedy request, on one data-parallel rank if given."""

    def tokenize(self, request: ChatRequest) -> list[int]:
        """The exact token ids of the request on that server."""
