"""From rendered texts to conclusions: one function for each field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prefixctl.lint.chat.behaviour import (
    Clock,
    Continuation,
    EmitsBos,
    InlineThink,
    MultiTurn,
    Order,
    Reasoning,
    Shared,
    SysTrim,
    Tools,
    ToolsMultiTurn,
)
from prefixctl.lint.chat.scenes import (
    BOS,
    LATER,
    PADDING,
    QUESTIONS,
    REASONING,
    SYSTEM,
    TOOL_MARKS,
)
from prefixctl.lint.sample_align import shared_chars
from prefixctl.prompts.sandbox import Outcome

_WORST_FIRST = (
    MultiTurn.ERR,
    MultiTurn.REWRITES,
    MultiTurn.GEN_PROMPT_DIFFERS,
    MultiTurn.FULL,
)


def end_of(outcome: Outcome, marks: Iterable[str]) -> int | None:
    """Behind the last of the first places at which marks stand; None if none stands anywhere."""
    if outcome.text is None:
        return None
    found = [at + len(m) for m in marks if (at := outcome.text.find(m)) >= 0]
    return max(found, default=None)


def shows_user(outcome: Outcome) -> bool:
    """Whether the user's text is printed."""
    return QUESTIONS[0] in (outcome.text or "")


def clock(given: Mapping[str, Outcome], name: str) -> Clock:
    """The finest clock that tells the texts of two times apart."""
    first = given[name]
    if first.text is None:
        return Clock.ERR
    for unit in LATER:
        if given[f"{name}_{unit}"].text != first.text:
            return Clock(unit)
    return Clock.NOT_EMITTED if first.clock_formats else Clock.NONE


def clock_formats(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """All formats with which the time was asked for, each once."""
    return tuple(dict.fromkeys(f for o in outcomes for f in o.clock_formats))


def sys_shared(first: Outcome, second: Outcome) -> Shared:
    """Whether two questions agree to the end of the system text; yes if there is none to lose."""
    if first.text is None or second.text is None:
        return Shared.ERR
    end = end_of(first, (SYSTEM,)) or 0
    return Shared.YES if shared_chars(first.text, second.text) >= end else Shared.NO


def continuations(given: Mapping[str, Outcome]) -> list[Continuation | None]:
    """How each turn agrees with the next, turn by turn; None where one is refused."""
    return [
        _continuation(
            given[f"opened_{turn}"],
            given[f"closed_{turn}"],
            given[f"opened_{turn + 1}"],
            QUESTIONS[turn - 1],
        )
        for turn in range(1, len(QUESTIONS))
    ]


def tool_turn(given: Mapping[str, Outcome]) -> Continuation | None:
    """How turn 1 agrees with turn 2 where there are tools."""
    return _continuation(given["tools"], given["tools_closed"], given["tools_2"], QUESTIONS[0])


def multi_turn(turns: Sequence[Continuation | None]) -> MultiTurn:
    """The worst of some turns."""
    kinds = {MultiTurn.ERR if t is None else t.kind for t in turns}
    return next(k for k in _WORST_FIRST if k in kinds)


def reasoning(last: Outcome, before: Outcome) -> Reasoning:
    """What happens to reasoning, from the turn that has it and from the next one."""
    if before.text is None:
        return Reasoning.ERR
    if REASONING in before.text:
        return Reasoning.KEPT
    return Reasoning.DROPPED if REASONING in (last.text or "") else Reasoning.NEVER


def inline_think(last: Outcome, before: Outcome) -> InlineThink:
    """The same for thoughts in the content."""
    if before.text is None:
        return InlineThink.ERR
    if REASONING in before.text:
        return InlineThink.KEPT
    return InlineThink.DROPPED if REASONING in (last.text or "") else InlineThink.STRIPPED


def tools(first: Outcome, second: Outcome) -> Tools:
    """Where tool schemas stand, from two questions."""
    if first.text is None or second.text is None:
        return Tools.ERR
    end = end_of(first, TOOL_MARKS)
    if end is None:
        return Tools.IGNORED
    shared = shared_chars(first.text, second.text) >= end
    return Tools.SHARED if shared else Tools.AFTER_USER_TEXT


def shows_tools(where: Tools) -> bool:
    """Whether tools reach the text at all."""
    return where in {Tools.SHARED, Tools.AFTER_USER_TEXT}


def tools_multi_turn(given: Mapping[str, Outcome]) -> ToolsMultiTurn:
    """Whether turn 1 with tools stays as it is when turn 2 is added."""
    turn = tool_turn(given)
    if turn is None:
        return ToolsMultiTurn.ERR
    return ToolsMultiTurn.MOVES if turn.kind is MultiTurn.REWRITES else ToolsMultiTurn.STABLE


def order(first: Outcome, second: Outcome) -> Order:
    """Whether a text depends on an order."""
    if first.text is None or second.text is None:
        return Order.ERR
    return Order.NORMALISED if first.text == second.text else Order.SENSITIVE


def emits_bos(outcome: Outcome) -> EmitsBos:
    """Whether the BOS token is printed."""
    if outcome.text is None:
        return EmitsBos.ERR
    return EmitsBos.YES if BOS in outcome.text else EmitsBos.NO


def sys_trim(padded: Outcome) -> SysTrim | None:
    """What happens to white space around the system text."""
    if padded.text is None:
        return None
    return SysTrim.KEEPS if SYSTEM.join(PADDING) in padded.text else SysTrim.TRIMS


def _continuation(
    opened: Outcome, closed: Outcome, following: Outcome, question: str
) -> Continuation | None:
    if opened.text is None or closed.text is None or following.text is None:
        return None
    end = end_of(opened, (question, SYSTEM, *TOOL_MARKS))
    return Continuation(
        shared_chars=shared_chars(opened.text, following.text),
        turn_chars=len(closed.text),
        opened_chars=len(opened.text),
        content_chars=len(opened.text) if end is None else end,
    )
