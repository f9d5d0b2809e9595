"""What a rule is, and what all rules that look at printed values share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from prefixctl.core.blocks import Alignment
from prefixctl.core.findings import Confidence, Finding, Location, Severity, Verdict
from prefixctl.core.prompt import Prompt, Volatility
from prefixctl.lint.chat.behaviour import ChatBehaviour
from prefixctl.lint.document import Document
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure, Measure
from prefixctl.lint.raw import RawFile
from prefixctl.lint.verdict import severity_of, verdict_of

Unbumped = Callable[[Prompt], str | None]
"""Says what changed in a prompt since its last version, or None if nothing did."""
Aligned = Callable[[Prompt], Alignment | None]
"""The exact shared tokens of a prompt on the target, or None if they cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A document that was read and measured: what the rules look at.

    Attributes:
        document: The document.
        measure: Its holes and tokens.
        block_size: Tokens in a block.
        block_size_known: Whether the target or the configuration says so.
        alignment: The exact shared tokens of a governed prompt on the target.
        unbumped: See `Unbumped`.
        behaviour: What rendering shows of a chat template, if it was rendered.
    """

    document: Document
    measure: Measure
    block_size: int
    block_size_known: bool = False
    alignment: Alignment | None = None
    unbumped: Unbumped | None = None
    behaviour: ChatBehaviour | None = None

    def tokens(self, count: int) -> str:
        """A number of tokens in words; "about" if it is an estimate."""
        return f"{count:,} tokens" if self.measure.counter.exact else f"about {count:,} tokens"


def _nothing(_rule: Rule, _file: RawFile) -> Iterator[Finding]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A lint rule. Its page is the docstring of its module.

    Attributes:
        id: ``PFX`` and three digits.
        name: Reads well after "allow".
        severity: Of its worst finding.
        confidence: Of its surest finding.
        check: Finds in what a prompt says.
        check_file: Finds in the bytes of a file that is a prompt as a whole.
    """

    id: str
    name: str
    severity: Severity
    confidence: Confidence
    check: Callable[[Rule, Reading], Iterator[Finding]]
    check_file: Callable[[Rule, RawFile], Iterator[Finding]] = _nothing


def exposed_values(
    rule: Rule,
    reading: Reading,
    kinds: Collection[CauseKind],
    advice: Callable[[Exposure], str],
) -> Iterator[Finding]:
    """One finding for each variable of these kinds that stands ahead of shareable text.

    Attributes of one variable count as that variable; the first place is reported. A loop in key
    order is fixed in another way than a dump of JSON, so the two are reported apart.
    """
    groups: dict[tuple[str, bool, Verdict], list[Exposure]] = {}
    for exposure in reading.measure.exposures:
        if exposure.moved_by or exposure.hole.cause.kind not in kinds:
            continue
        verdict = verdict_of(exposure, reading.block_size)
        if verdict is Verdict.OK:
            continue
        looped = exposure.hole.origin.word == "for"
        groups.setdefault((_root(exposure), looped, verdict), []).append(exposure)
    broken = {root for root, _, verdict in groups if verdict is Verdict.BREAK}
    for (root, _, verdict), exposures in groups.items():
        if verdict is Verdict.WARN and root in broken:
            continue
        yield _finding(rule, reading, exposures, advice(exposures[0]))


def place_of(reading: Reading, exposure: Exposure) -> Location:
    """Where a value is reported: where it is printed, or where a template computes it itself.

    A value that a caller may pass instead is reported where it is printed, since the template's
    own computation is only its default.
    """
    hole = exposure.hole
    block = reading.document.blocks[hole.block]
    site = hole.site or hole.origin
    computed = hole.cause.fixed and hole.cause.kind in {CauseKind.CLOCK, CauseKind.RANDOM}
    declared = hole.cause.variable.split(".")[0] in reading.document.parameters
    own = computed and not declared and hole.cause.passable is None
    if exposure.condition or (own and hole.origin.line != site.line):
        site = hole.origin
    return block.locate(site)


def shown(exposure: Exposure) -> str:
    """A value as a message names it."""
    return exposure.hole.cause.passable or exposure.hole.cause.variable


def behind(reading: Reading, exposure: Exposure) -> str:
    """What stands behind a value, in words."""
    text = f"{reading.tokens(exposure.tokens_behind)} of static text"
    if exposure.shareable_tokens > exposure.tokens_behind:
        text = f"{text} and the application's own text in a variable"
    if not exposure.before_conversation:
        return text
    if exposure.tokens_behind < reading.block_size:
        return "the whole conversation"
    return f"{text} and the whole conversation"


def _finding(rule: Rule, reading: Reading, exposures: list[Exposure], advice: str) -> Finding:
    first = exposures[0]
    cause = first.hole.cause
    others = len({(e.hole.site, e.hole.cause.variable) for e in exposures}) - 1
    again = f" (and {others} more such values)" if others else ""
    place = place_of(reading, first)
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=severity_of(first, reading.block_size),
        confidence=min(cause.confidence, rule.confidence),
        location=place,
        message=f"`{shown(first)}`{again} {_verb(first)} ahead of {behind(reading, first)}: "
        f"{cause.reason}{_printed_elsewhere(reading, first, place)}",
        advice=advice,
        variable=shown(first),
        volatility=cause.volatility,
        tokens_lost=first.tokens_behind,
    )


def _verb(exposure: Exposure) -> str:
    often = _OFTEN.get(exposure.hole.cause.volatility, "")
    if exposure.condition:
        return f"decides what is printed and changes {often},"
    guarded = ", where its condition holds," if exposure.guarded else ""
    if exposure.hole.cause.kind is CauseKind.ORDER:
        return f"is printed in no fixed order{guarded}"
    return f"changes {often} and stands{guarded}"


def _printed_elsewhere(reading: Reading, exposure: Exposure, place: Location) -> str:
    site = exposure.hole.site
    if site is None:
        return ""
    printed = reading.document.blocks[exposure.hole.block].locate(site)
    return "" if printed.line == place.line else f"; it is printed on line {printed.line}"


def _root(exposure: Exposure) -> str:
    return shown(exposure).split(".", 1)[0]


_OFTEN: dict[Volatility | None, str] = {
    Volatility.DEPLOYMENT: "with the deployment",
    Volatility.TENANT: "with the tenant",
    Volatility.DAY: "every day",
    Volatility.HOUR: "every hour",
    Volatility.USER: "with the user",
    Volatility.SESSION: "with the session",
    Volatility.MINUTE: "every minute",
    Volatility.REQUEST: "with every request",
    Volatility.SECOND: "every second",
}
