"""What the gateway tells about one request: for its log line, its counters and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefixctl.core.blocks import expected_hit_tokens
from prefixctl.core.usage import CacheState, CacheUse
from prefixctl.gateway.prefix import Prefix
from prefixctl.gateway.refusal import Reason

ANOTHER = "other"


@dataclass(slots=True, kw_only=True)
class Record:
    """One request, as far as it came.

    Attributes:
        path: The route; not what the client wrote, which could be anything.
        tenant: Its pseudonym; empty if nobody was recognised.
        operator: Whether an operator sent it.
        prefix: The prefix that was put in front, if any.
        block_tokens: The cache unit.
        status: The HTTP status; None if the answer never began.
        reason: Why it was refused, if it was.
        use: What the engine reported.
        ttft_seconds: To the first token of a stream.
        own_seconds: What the gateway took, without the time to receive the body.
        seconds: From arrival to the end of the answer.
        complete: Whether the answer ended.
        counts: Whether it was prefill work.
        dropped: Fields and headers of the client that were dropped.
    """

    path: str
    tenant: str = ""
    operator: bool = False
    prefix: Prefix | None = None
    block_tokens: int = 1
    status: int | None = None
    reason: Reason | None = None
    use: CacheUse | None = None
    ttft_seconds: float | None = None
    own_seconds: float = 0.0
    seconds: float = 0.0
    complete: bool = False
    counts: bool = False
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def state(self) -> CacheState | None:
        """The cache state; None for a request that was refused, failed, or is no prefill work."""
        if not self.counts or self.status is None or self.status >= 400:  # noqa: PLR2004
            return None
        if self.use is None:
            return CacheState.UNREPORTED
        tokens = self.use.prompt_tokens
        if self.prefix is None:
            expected = expected_hit_tokens(tokens, tokens, self.block_tokens)
        else:
            expected = self.prefix.expected_hit_tokens(tokens)
        return self.use.state(expected)

    def line(self) -> str:
        """One line of JSON: no text of the request, no secret, no name of a tenant."""
        told: dict[str, Any] = {
            "path": self.path,
            "tenant": self.tenant,
            "status": self.status,
            "reason": None if self.reason is None else self.reason.value,
            "prefix": None if self.prefix is None else self.prefix.label,
            "state": None if self.state is None else self.state.value,
            "prompt_tokens": None if self.use is None else self.use.prompt_tokens,
            "cached_tokens": None if self.use is None else self.use.cached_tokens,
            "ttft_ms": _milliseconds(self.ttft_seconds),
            "gateway_ms": _milliseconds(self.own_seconds),
            "ms": _milliseconds(self.seconds),
        }
        if self.operator:
            told["operator"] = True
        if self.dropped:
            told["dropped"] = dict(self.dropped)
        if self.reason is None and not self.complete:
            told["broken_off"] = True
        return json.dumps({name: value for name, value in told.items() if value is not None})


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


class TopLabels:
    """Names that get a label of their own; the others share one, so that series stay few.

    The first names get one; a name that later proves to be twice as busy as the least busy of
    them takes its place. No more than twice the number of labels is ever given out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._given: set[str] = set()
        self._current: dict[str, int] = {}
        self._others: Counter[str] = Counter()

    def label(self, name: str) -> str:
        """The label for one more event of a name."""
        if name in self._current:
            self._current[name] += 1
            return name
        if len(self._current) < self._most:
            self._admit(name, 1)
            return name
        self._others[name] += 1
        if len(self._others) > 10_000:  # noqa: PLR2004 - enough to find the busy ones
            self._others = Counter(dict(self._others.most_common(1_000)))
        if not self._current or len(self._given) >= 2 * self._most:
            return ANOTHER
        least = min(self._current, key=self._current.__getitem__)
        if self._others[name] <= 2 * self._current[least]:
            return ANOTHER
        self._others[least] = self._current.pop(least)
        self._admit(name, self._others.pop(name))
        return name

    def _admit(self, name: str, count: int) -> None:
        self._given.add(name)
        self._current[name] = count


def label_values(record: Record) -> Mapping[str, str]:
    """The labels of a request's prefix."""
    if record.prefix is None:
        return {"prefix": "", "version": ""}
    return {"prefix": record.prefix.prompt.name, "version": str(record.prefix.version)}
