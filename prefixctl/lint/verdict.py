"""From a value and what stands behind it to a verdict: the one definition."""

from __future__ import annotations

from prefixctl.core.findings import Severity, Verdict
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure

_WARN = frozenset([Volatility.DEPLOYMENT, Volatility.TENANT, Volatility.DAY, Volatility.HOUR])
_FINE_CLOCK = frozenset([Volatility.SECOND, Volatility.MINUTE])
_ORDER = {Verdict.OK: 0, Verdict.WARN: 1, Verdict.BREAK: 2, Verdict.ERROR: 3}


def verdict_of(exposure: Exposure, block_size: int) -> Verdict:
    """What one value does to the shared prefix.

    Args:
        exposure: The value and what stands behind it.
        block_size: Tokens in a block; less shareable text behind a value is no loss.
    """
    if exposure.moved_by is not None:
        return Verdict.BREAK if _is_shared_text(exposure) else Verdict.WARN
    if not (exposure.before_conversation or exposure.shareable_tokens >= block_size):
        return Verdict.OK
    return _verdict_ahead(exposure)


def _verdict_ahead(exposure: Exposure) -> Verdict:
    """The verdict on a value that stands ahead of shareable text."""
    cause = exposure.hole.cause
    if cause.kind is CauseKind.ORDER:
        return Verdict.WARN
    if cause.volatility is None or cause.volatility < Volatility.DEPLOYMENT:
        return Verdict.OK
    if exposure.condition or cause.volatility in _WARN:
        return Verdict.WARN
    guarded = exposure.guarded and cause.volatility not in _FINE_CLOCK
    return Verdict.WARN if guarded else Verdict.BREAK


def severity_of(exposure: Exposure, block_size: int) -> Severity:
    """How bad a finding is: as its verdict; a deployment's own value is a remark."""
    verdict = verdict_of(exposure, block_size)
    if verdict is Verdict.BREAK:
        return Severity.ERROR
    if exposure.hole.cause.kind is CauseKind.DEPLOYMENT or verdict is Verdict.OK:
        return Severity.INFO
    return Severity.WARNING


def worst(verdicts: list[Verdict]) -> Verdict:
    """The worst verdict; ok without any."""
    return max(verdicts, key=_ORDER.__getitem__, default=Verdict.OK)


def _is_shared_text(exposure: Exposure) -> bool:
    return "reasoning" not in (name := exposure.hole.cause.variable) and "thinking" not in name
