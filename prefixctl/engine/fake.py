"""A test double of the `Engine` port: a prefix cache of token blocks in memory, and no model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from prefixctl.core.blocks import expected_hit_tokens
from prefixctl.core.ports import ChatRequest, Completion, ServerFacts
from prefixctl.core.usage import CacheUse
from prefixctl.errors import UnreachableError
from prefixctl.ids import Salt

FACTS = ServerFacts(models=("fake",))


class FakeEngine:
    """Caches full blocks by (salt, all tokens up to the block's end), LRU, for each rank.

    What a test may break is an argument: salts that are ignored, usage that is not reported, a
    cache that is too small, a server that is down.
    """

    def __init__(
        self,
        tokenizer: Callable[[ChatRequest], list[int]],
        *,
        url: str = "http://fake",
        block_size: int = 16,
        capacity_blocks: int = 100_000,
        ranks: int = 1,
        honours_salts: bool = True,
        reports_cached: bool = True,
        is_up: bool = True,
        facts: ServerFacts = FACTS,
    ) -> None:
        self._tokenizer = tokenizer
        self._url = url
        self._block_size = block_size
        self._capacity = capacity_blocks
        self._honours_salts = honours_salts
        self._reports = reports_cached
        self.is_up = is_up
        self._facts = facts
        self._caches: list[OrderedDict[tuple[object, ...], None]] = [
            OrderedDict() for _ in range(ranks)
        ]
        self.requests: list[tuple[ChatRequest, Salt | None, int | None]] = []

    @property
    def url(self) -> str:
        """As given."""
        return self._url

    def facts(self) -> ServerFacts:
        """What was given, and one model."""
        self._check_up()
        return replace(self._facts, ranks=len(self._caches))

    def tokenize(self, request: ChatRequest) -> list[int]:
        """By the tokenizer given."""
        self._check_up()
        return self._tokenizer(request)

    def complete(
        self,
        request: ChatRequest,
        *,
        max_tokens: int = 1,  # noqa: ARG002 - the port's signature
        salt: Salt | None = None,
        rank: int | None = None,
    ) -> Completion:
        """Count the leading cached blocks, then cache the request's own."""
        self._check_up()
        self.requests.append((request, salt, rank))
        tokens = self._tokenizer(request)
        size = self._block_size
        cache = self._caches[rank or 0]
        namespace = salt if self._honours_salts else None
        keys = [(namespace, *tokens[:end]) for end in range(size, len(tokens) + 1, size)]
        hits = 0
        for key in keys:
            if key not in cache:
                break
            hits += 1
        for key in keys:
            cache[key] = None
            cache.move_to_end(key)
            if len(cache) > self._capacity:
                cache.popitem(last=False)
        cached = expected_hit_tokens(hits * size, len(tokens), size)
        use = CacheUse(
            prompt_tokens=len(tokens),
            cached_tokens=cached if self._reports else None,
            ttft_seconds=0.001,
        )
        return Completion(use=use)

    def _check_up(self) -> None:
        if not self.is_up:
            raise UnreachableError(f"{self._url} does not answer")
