"""An active test between two tenants on a live server, by cached tokens.

Both must hold: a request repeated in the same namespace hits, the same request in another
namespace does not. The first without the second is a leak; without the first nothing is shown.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from prefixctl.core.ports import ChatRequest, Engine
from prefixctl.core.usage import CacheUse
from prefixctl.errors import ExitCode
from prefixctl.ids import Salt


class Isolation(StrEnum):
    """What the probe found."""

    ISOLATED = "isolated"
    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTenant:
    """A tenant as the probe sees it: a label for people, and the salt of its requests."""

    label: str
    salt: Salt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRound:
    """One text, written by one tenant and read by both. Tokens; None is not reported.

    A fresh text can hit what every request begins with (the chat template's own words), so hits
    are counted above that floor, for each tenant its own.

    Attributes:
        rank: Data-parallel rank.
        writer: The tenant that sent the text first.
        reader: The other one.
        prompt_tokens: Length of the request.
        writer_floor: Cached tokens of the writer's first request.
        reader_floor: Cached tokens of the reader's own fresh text.
        same_cached: Cached tokens when the writer repeats the text: must be above its floor.
        other_cached: Cached tokens when the reader sends it: must not be above its floor.
    """

    rank: int
    writer: str
    reader: str
    prompt_tokens: int
    writer_floor: int | None
    reader_floor: int | None
    same_cached: int | None
    other_cached: int | None

    @property
    def isolation(self) -> Isolation:
        """What this round shows."""
        if self.other_cached is None or self.reader_floor is None:
            return Isolation.INCONCLUSIVE
        if self.other_cached > self.reader_floor:
            return Isolation.LEAK
        if self.same_cached is None or self.writer_floor is None:
            return Isolation.INCONCLUSIVE
        hit = self.same_cached > self.writer_floor
        return Isolation.ISOLATED if hit else Isolation.INCONCLUSIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """All rounds on one server."""

    server: str
    rounds: tuple[ProbeRound, ...]
    salted: bool

    @property
    def isolation(self) -> Isolation:
        """A leak in any round is a leak; isolation must be shown in every round."""
        found = {r.isolation for r in self.rounds}
        if Isolation.LEAK in found:
            return Isolation.LEAK
        return Isolation.ISOLATED if found == {Isolation.ISOLATED} else Isolation.INCONCLUSIVE

    @property
    def exit_code(self) -> ExitCode:
        """0 isolated, 1 leak, 6 cannot tell."""
        codes = {Isolation.ISOLATED: ExitCode.OK, Isolation.LEAK: ExitCode.FINDINGS}
        return codes.get(self.isolation, ExitCode.UNDERPOWERED)

    def explain(self) -> str:
        """The result in words, with the way out."""
        leaks = [r for r in self.rounds if r.isolation is Isolation.LEAK]
        if leaks:
            worst = max(leaks, key=lambda r: r.other_cached or 0)
            cause = (
                "the server ignores the salts that were sent"
                if self.salted
                else "requests carry no salt, so all tenants share one namespace; give the "
                "tenancy secret and let every request carry its tenant's salt"
            )
            return (
                f"LEAK in {len(leaks)} of {len(self.rounds)} rounds: '{worst.reader}' was served "
                f"{worst.other_cached:,} of {worst.prompt_tokens:,} tokens that '{worst.writer}' "
                f"had computed: {cause}"
            )
        if self.isolation is Isolation.ISOLATED:
            return (
                f"isolated: in {len(self.rounds)} rounds each tenant hit its own prefix and never "
                "the other's"
            )
        if any(r.same_cached is None for r in self.rounds):
            return (
                "cannot tell: the server does not report cached tokens; start it with "
                "--enable-prompt-tokens-details"
            )
        return (
            "cannot tell: a tenant did not hit its own prefix, so a miss of the other proves "
            "nothing; is prefix caching on, and is there room in the cache?"
        )


def probe(
    engine: Engine,
    tenants: tuple[ProbeTenant, ProbeTenant],
    *,
    rounds: int,
    words: int,
    rng: random.Random,
) -> ProbeReport:
    """Run the test in both directions on every data-parallel rank.

    Args:
        engine: The server.
        tenants: Two with different names.
        rounds: Texts for each direction and rank, at least 1.
        words: Length of a text; must be several KV blocks long.
        rng: Makes texts that nobody has sent before.

    Raises:
        UnreachableError: If the server does not answer.
    """
    fresh = functools.partial(_fresh_request, words, rng)
    done: list[ProbeRound] = []
    first, second = tenants
    for rank in range(engine.facts().ranks):
        for _ in range(rounds):
            done.append(_round(engine, first, second, rank, fresh))
            done.append(_round(engine, second, first, rank, fresh))
    salted = first.salt is not None and second.salt is not None
    return ProbeReport(server=engine.url, rounds=tuple(done), salted=salted)


def _round(
    engine: Engine,
    writer: ProbeTenant,
    reader: ProbeTenant,
    rank: int,
    fresh: Callable[[], ChatRequest],
) -> ProbeRound:
    def send(tenant: ProbeTenant, request: ChatRequest) -> CacheUse:
        return engine.complete(request, salt=tenant.salt, rank=rank).use

    text = fresh()
    # After this one the words that every request begins with are resident for the reader too.
    send(reader, fresh())
    floor = send(reader, fresh())
    first, same, other = send(writer, text), send(writer, text), send(reader, text)
    return ProbeRound(
        rank=rank,
        writer=writer.label,
        reader=reader.label,
        prompt_tokens=first.prompt_tokens,
        writer_floor=first.cached_tokens,
        reader_floor=floor.cached_tokens,
        same_cached=same.cached_tokens,
        other_cached=other.cached_tokens,
    )


def _fresh_request(words: int, rng: random.Random) -> ChatRequest:
    syllables: Sequence[str] = ("ba", "co", "di", "fu", "ge", "ha", "ki", "lo", "mu", "ne")
    text = " ".join("".join(rng.choices(syllables, k=3)) for _ in range(words))
    return ChatRequest(messages=({"role": "user", "content": text},))
