"""What each conclusion means for the prefix cache, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prefixctl.core.findings import Verdict
from prefixctl.lint.chat.behaviour import ChatBehaviour, Clock, Continuation, MultiTurn

COLUMNS = (
    "clock_sys", "clock_nosys", "clock_tools", "sys_shared", "multi_turn", "later_turns",
    "reasoning", "inline_think", "tools", "tools_multi_turn", "tools_key_order",
    "tools_list_order", "emits_bos", "sys_trim", "note",
)  # fmt: skip
"""The conclusions in the order in which they are shown; field names of `ChatBehaviour`."""

_CLOCK_ADVICE = "pass the date in the last user turn, or as a template variable that you set"
_FINE_CLOCK = (
    Verdict.BREAK,
    f"no two requests share what stands behind the clock; {_CLOCK_ADVICE}",
)
_DAY_CLOCK = (Verdict.WARN, f"everything behind the date is cold once a day; {_CLOCK_ADVICE}")
_ADVICE: dict[tuple[str, str], tuple[Verdict, str]] = {
    ("clock", Clock.SECOND): _FINE_CLOCK,
    ("clock", Clock.MINUTE): _FINE_CLOCK,
    ("clock", Clock.DAY): _DAY_CLOCK,
    ("sys_shared", "NO"): (
        Verdict.BREAK,
        "the question stands ahead of the system text; print the system text first",
    ),
    ("reasoning", "dropped-on-next-user-turn"): (
        Verdict.WARN,
        "a turn with reasoning is found again up to its answer only; count on no more",
    ),
    ("inline_think", "dropped-in-history"): (
        Verdict.WARN,
        "an answer with <think> text is computed again once the next turn comes",
    ),
    ("inline_think", "stripped-always"): (
        Verdict.OK,
        "send answers without their <think> text; it never reaches the model",
    ),
    ("tools", "AFTER-USER-TEXT"): (
        Verdict.WARN,
        "schemas are computed again for every question; print them ahead of the first turn",
    ),
    ("tools_key_order", "sensitive"): (
        Verdict.OK,
        "send the keys of tool schemas in one fixed order from every client",
    ),
    ("tools_list_order", "sensitive"): (
        Verdict.OK,
        "send tools in one fixed order, for example by name",
    ),
    ("emits_bos", "yes"): (
        Verdict.OK,
        "tokenise the text without special tokens, or the BOS token stands there twice",
    ),
    ("sys_trim", "keeps-whitespace"): (
        Verdict.OK,
        "white space around the system text is part of the prefix; trim it in the client",
    ),
    ("note", "no-system-role"): (
        Verdict.WARN,
        "put the instructions at the start of the first user turn; a system message is refused",
    ),
    ("note", "system-dropped"): (
        Verdict.WARN,
        "system text never reaches the model; put it at the start of the first user turn",
    ),
}
_MOVES = "print system text and tools once, ahead of the first turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One conclusion for people.

    Attributes:
        name: The field of `ChatBehaviour`.
        value: The conclusion; ``-`` where it does not apply.
        verdict: What it does to the shared prefix.
        advice: What to do; empty where nothing is to be done.
    """

    name: str
    value: str
    verdict: Verdict
    advice: str


def rows(behaviour: ChatBehaviour) -> tuple[Row, ...]:
    """All conclusions with their advice, in the order of `COLUMNS`."""
    return tuple(_rows(behaviour))


def _rows(behaviour: ChatBehaviour) -> Iterator[Row]:
    refused = {r.field: r.message for r in behaviour.refusals}
    for name in COLUMNS:
        value = getattr(behaviour, name)
        shown = "-" if value is None else str(value)
        verdict, advice = _turns(behaviour, name) or _ADVICE.get(
            ("clock" if name.startswith("clock") else name, shown), (Verdict.OK, "")
        )
        if name in refused:
            verdict, advice = Verdict.WARN, f"refused: {refused[name]}"
        yield Row(name=name, value=shown, verdict=verdict, advice=advice)


def _turns(behaviour: ChatBehaviour, name: str) -> tuple[Verdict, str] | None:
    """The advice on what happens to earlier turns, with its evidence."""
    by_name = {
        "multi_turn": behaviour.turns[:1],
        "later_turns": behaviour.turns[1:],
        "tools_multi_turn": () if behaviour.tool_turn is None else (behaviour.tool_turn,),
    }
    turns = by_name.get(name, ())
    lost = next((t for t in turns if t.kind is MultiTurn.REWRITES), None)
    if lost is not None:
        return _lost(lost)
    if name != "tools_multi_turn" and any(t.kind is MultiTurn.GEN_PROMPT_DIFFERS for t in turns):
        return (
            Verdict.WARN,
            "the opening of the assistant's answer is computed again: a few tokens each turn",
        )
    return None


def _lost(turn: Continuation) -> tuple[Verdict, str]:
    where = f"the next turn keeps {turn.shared_chars:,} of {turn.turn_chars:,} characters"
    if turn.changes_content:
        return Verdict.BREAK, f"{where}; {_MOVES}"
    return Verdict.WARN, f"{where}; only the template's own words at the end change"
