"""Whether a chat template really moves what its text seems to move: shown by rendering it.

What is claimed from a template's text alone is that something is printed by where its turn stands
from the end. Rendering tells whether that changes earlier turns, and how much of them stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from prefixctl.core.findings import Confidence, Verdict
from prefixctl.lint.chat.behaviour import ChatBehaviour, Continuation, InlineThink, Reasoning
from prefixctl.lint.chat.measure import measure_template
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure
from prefixctl.lint.verdict import verdict_of
from prefixctl.prompts.sandbox import shared_sandbox

_KEPT_TEMPLATES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What rendering says of one claim.

    Attributes:
        holds: True if the renders show it, False if they show that it is not so, None if they say
            neither.
        turn: The turn that shows it.
    """

    holds: bool | None
    turn: Continuation | None = None

    @property
    def confidence(self) -> Confidence:
        """How sure the claim is now."""
        return Confidence.HIGH if self.holds else Confidence.MEDIUM

    @property
    def evidence(self) -> str:
        """What was seen, in words, behind a comma; nothing if nothing was."""
        if not self.holds or self.turn is None:
            return ""
        turn = self.turn
        return (
            f"; rendered, the next turn keeps {turn.shared_chars:,} of {turn.turn_chars:,} "
            "characters of this one"
        )


UNKNOWN = Shown(holds=None)


def without_refuted(
    exposures: Sequence[Exposure], text: str, block_size: int
) -> tuple[list[Exposure], ChatBehaviour | None]:
    """The exposures of a chat template, with no claim of a moved text that rendering refutes.

    Only a claim that breaks the prefix is worth a render; it then settles the others as well.

    Returns:
        The exposures, and what the template does if it was rendered.
    """
    moved = (e for e in exposures if e.moved_by is not None)
    if not any(verdict_of(e, block_size) is Verdict.BREAK for e in moved):
        return [*exposures], None
    behaviour = _measured(text)
    if behaviour is None:
        return [*exposures], None
    kept = [
        replace(e, moved_by=None) if e.moved_by and shown(e, behaviour).holds is False else e
        for e in exposures
    ]
    return kept, behaviour


def shown(exposure: Exposure, behaviour: ChatBehaviour | None) -> Shown:
    """What rendering says of the claim that a text is moved."""
    if behaviour is None or behaviour.failure is not None or not behaviour.turns:
        return UNKNOWN
    cause = exposure.hole.cause
    if "reasoning" in cause.variable or "thinking" in cause.variable:
        return _reasoning(behaviour)
    if cause.kind is CauseKind.SYSTEM:
        lost = next((t for t in behaviour.turns if t.changes_content), None)
        return Shown(holds=behaviour.rewrites_history, turn=lost)
    if behaviour.tool_turn is None:
        return UNKNOWN
    return Shown(holds=behaviour.moves_tools, turn=behaviour.tool_turn)


def _reasoning(behaviour: ChatBehaviour) -> Shown:
    dropped = behaviour.inline_think is InlineThink.DROPPED
    if behaviour.reasoning is Reasoning.DROPPED or dropped:
        return Shown(holds=True)
    kept = behaviour.reasoning is Reasoning.KEPT and behaviour.inline_think is InlineThink.KEPT
    return Shown(holds=False) if kept else UNKNOWN


@lru_cache(maxsize=_KEPT_TEMPLATES)
def _measured(text: str) -> ChatBehaviour | None:
    """What a template does; None where it cannot be rendered.

    Raises:
        PrefixctlError: If no sandbox can be had: a finding is not weakened by that.
    """
    behaviour = measure_template(text, sandbox=shared_sandbox())
    return None if behaviour.failure is not None else behaviour
