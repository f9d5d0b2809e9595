"""The published prefixes as they are now: looked up by key, read again when the registry changed.

A request takes one `Prefix` and keeps it, so it sees one version from start to end.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from prefixctl.gateway.prefix import Expansion, Prefix, Reference

CHECK_SECONDS = 0.2
MOST_PREFIXES = 20_000
MOST_EXPANSIONS = 4_096
MOST_EXPANSION_CHARS = 64 * 2**20


class Source(Protocol):
    """Where prefixes are published."""

    def stamp(self) -> Hashable:
        """Something that differs after every change; costs microseconds."""

    def load(self, reference: Reference) -> Prefix:
        """A published prefix; called in a thread of its own, one call at a time.

        Raises:
            RefusedError: 404 for an unknown name, 409 for a version that is not kept, 503 if the
                registry cannot be read.
        """


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: Hashable
    prefix: Prefix


@dataclass(frozen=True, slots=True)
class _Made:
    expansion: Expansion
    chars: int


class LivePrefixes:
    """Finds and renders prefixes without holding up the event loop."""

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Set up; nothing is read yet."""
        self._source = source
        self._clock = clock
        self._stamp: Hashable = None
        self._checked_at = float("-inf")
        self._known: OrderedDict[Reference, _Known] = OrderedDict()
        self._loading: dict[tuple[Reference, Hashable], asyncio.Future[Prefix]] = {}
        self._made: OrderedDict[Hashable, _Made] = OrderedDict()
        self._made_chars = 0
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="prefixctl-registry")
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="prefixctl-render")

    def close(self) -> None:
        """End the threads."""
        self._reader.shutdown(wait=False, cancel_futures=True)
        self._renderer.shutdown(wait=False, cancel_futures=True)

    async def find(self, reference: Reference) -> Prefix:
        """The prefix that a reference means at this moment. Errors as in `Source.load`."""
        stamp = self._current_stamp()
        known = self._known.get(reference)
        if known is not None and known.stamp == stamp:
            return known.prefix
        key = (reference, stamp)
        loading = self._loading.get(key)
        if loading is None:
            loading = asyncio.get_running_loop().run_in_executor(
                self._reader, self._source.load, reference
            )
            self._loading[key] = loading
            loading.add_done_callback(lambda _: self._loading.pop(key, None))
        prefix = await asyncio.shield(loading)
        if known is not None and (known.prefix.id, known.prefix.version) == (
            prefix.id,
            prefix.version,
        ):
            prefix = known.prefix  # what was worked out about it stays
        self._known[reference] = _Known(stamp, prefix)
        if len(self._known) > MOST_PREFIXES:
            self._known.popitem(last=False)
        return prefix

    async def expand(self, prefix: Prefix, values: object, *, whole: bool) -> Expansion:
        """See `Prefix.expand`; what does not hold the client's own words is kept."""
        if whole and not prefix.interleaved:
            leading = await self.expand(prefix, prefix.leading_values(values), whole=False)
            return await asyncio.get_running_loop().run_in_executor(
                self._renderer, prefix.complete, leading, values
            )
        key = None if whole else _key(prefix, values)
        made = self._made.get(key) if key is not None else None
        if made is not None:
            self._made.move_to_end(key)
            return made.expansion
        expansion = await asyncio.get_running_loop().run_in_executor(
            self._renderer, lambda: prefix.expand(values, whole=whole)
        )
        if key is not None and key not in self._made:
            self._keep(key, expansion)
        return expansion

    def _keep(self, key: Hashable, expansion: Expansion) -> None:
        chars = len(repr(expansion.messages)) + len(repr(expansion.tools))
        self._made[key] = _Made(expansion, chars)
        self._made_chars += chars
        while len(self._made) > 1 and (
            self._made_chars > MOST_EXPANSION_CHARS or len(self._made) > MOST_EXPANSIONS
        ):
            _, gone = self._made.popitem(last=False)
            self._made_chars -= gone.chars

    def _current_stamp(self) -> Hashable:
        now = self._clock()
        if now - self._checked_at >= CHECK_SECONDS:
            self._stamp = self._source.stamp()
            self._checked_at = now
        return self._stamp


def _key(prefix: Prefix, values: object) -> Hashable | None:
    if values is None:
        values = {}
    if not isinstance(values, Mapping) or not all(isinstance(v, str) for v in values.values()):
        return None
    return prefix.label, prefix.id, tuple(sorted(values.items()))
