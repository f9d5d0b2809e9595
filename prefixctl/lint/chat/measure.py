"""Measuring a chat template: render conversations in the sandbox and compare the texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prefixctl.lint.chat import judge
from prefixctl.lint.chat.behaviour import ChatBehaviour, Note, Refusal
from prefixctl.lint.chat.scenes import (
    ANSWERS,
    LATER,
    OTHER_QUESTION,
    PADDING,
    QUESTIONS,
    REASONING,
    SYSTEM,
    TOOLS,
    Form,
    Scene,
    reordered,
)
from prefixctl.prompts.sandbox import Failure, Job, Outcome, Sandbox

INLINE = f"<think>\n{REASONING}\n</think>\n\n{ANSWERS[0]}"
_CLOCKS = ("clock", "clock_nosys", "clock_tools")
_WITHOUT_SYSTEM = {"clock_nosys", *(f"clock_nosys_{unit}" for unit in LATER)}
_PLAINEST = 1
"""The form whose failure is told where all fail: texts, no system message."""


def measure_template(source: str, *, sandbox: Sandbox | None = None) -> ChatBehaviour:
    """Measure a chat template.

    Args:
        source: The template.
        sandbox: Renders it; one that ends with the call if omitted.

    Returns:
        What it does. A template that cannot be parsed, is hostile or refuses a plain question has
        its `ChatBehaviour.failure` set.

    Raises:
        PrefixctlError: If the sandbox cannot be started.
    """
    if sandbox is None:
        with Sandbox() as own:
            return measure_template(source, sandbox=own)
    probed = _probe(source, sandbox)
    if isinstance(probed, Failure):
        return ChatBehaviour(failure=probed)
    scenes = _scenes()
    renders = [
        s.render(replace(probed, system=probed.system and name not in _WITHOUT_SYSTEM))
        for name, s in scenes.items()
    ]
    outcomes = sandbox.render(Job(source=source, renders=renders))
    for outcome in outcomes:
        if outcome.failure and outcome.failure.kind.is_hostile:
            return ChatBehaviour(failure=outcome.failure)
    return _concluded(dict(zip(scenes, outcomes, strict=True)), probed)


def _probe(source: str, sandbox: Sandbox) -> Form | Failure:
    """The form of conversation that a template takes, or why it takes none.

    The first in which it prints the user's text; in the order in which a server would try them.
    """
    forms = [
        Form(system=system, parts=parts, absent=absent)
        for absent in (False, True)
        for parts in (False, True)
        for system in (True, False)
    ]
    outcomes = sandbox.render(Job(source=source, renders=[Scene().render(f) for f in forms]))
    rendered = {f: o for f, o in zip(forms, outcomes, strict=True) if o.text is not None}
    speaking = (f for f, o in rendered.items() if judge.shows_user(o))
    form = next(speaking, next(iter(rendered), None))
    if form is not None:
        return form
    failures = [o.failure for o in outcomes if o.failure is not None]
    return failures[_PLAINEST]


def _scenes() -> dict[str, Scene]:
    made = {
        "one": Scene(),
        "other": Scene(first=OTHER_QUESTION),
        "padded": Scene(system=SYSTEM.join(PADDING)),
        "reasoned": Scene(answered=True, opened=False, answer={"reasoning_content": REASONING}),
        "reasoned_before": Scene(turns=2, answer={"reasoning_content": REASONING}),
        "thought": Scene(answered=True, opened=False, answer={"content": INLINE}),
        "thought_before": Scene(turns=2, answer={"content": INLINE}),
        "tools": Scene(tools=TOOLS),
        "tools_other": Scene(tools=TOOLS, first=OTHER_QUESTION),
        "tools_closed": Scene(tools=TOOLS, opened=False),
        "tools_2": Scene(turns=2, tools=TOOLS),
        "tools_keys": Scene(tools=reordered(TOOLS)),
        "tools_list": Scene(tools=TOOLS[::-1]),
    }
    for turns in range(1, len(QUESTIONS) + 1):
        made[f"opened_{turns}"] = Scene(turns=turns)
        made[f"closed_{turns}"] = Scene(turns=turns, opened=False)
    for clock in _CLOCKS:
        tools = TOOLS if clock == "clock_tools" else None
        made[clock] = Scene(tools=tools)
        made |= {f"{clock}_{unit}": Scene(tools=tools, now=now) for unit, now in LATER.items()}
    return made


def _concluded(given: Mapping[str, Outcome], form: Form) -> ChatBehaviour:
    system_text = judge.end_of(given["one"], (SYSTEM,)) is not None
    turns = judge.continuations(given)
    tools = judge.tools(given["tools"], given["tools_other"])
    shown = judge.shows_tools(tools)
    return ChatBehaviour(
        clock_sys=judge.clock(given, "clock"),
        clock_nosys=judge.clock(given, "clock_nosys"),
        clock_tools=judge.clock(given, "clock_tools"),
        sys_shared=judge.sys_shared(given["one"], given["other"]),
        multi_turn=judge.multi_turn(turns[:1]),
        later_turns=judge.multi_turn(turns[1:]),
        reasoning=judge.reasoning(given["reasoned"], given["reasoned_before"]),
        inline_think=judge.inline_think(given["thought"], given["thought_before"]),
        tools=tools,
        tools_multi_turn=judge.tools_multi_turn(given) if shown else None,
        tools_key_order=judge.order(given["tools"], given["tools_keys"]) if shown else None,
        tools_list_order=judge.order(given["tools"], given["tools_list"]) if shown else None,
        emits_bos=judge.emits_bos(given["one"]),
        sys_trim=judge.sys_trim(given["padded"]) if form.system and system_text else None,
        note=_note(form, system_text=system_text),
        shows_user=judge.shows_user(given["one"]),
        needs_tools=form.absent,
        clock_formats=judge.clock_formats(given.values()),
        turns=tuple(t for t in turns if t is not None),
        tool_turn=judge.tool_turn(given) if shown else None,
        refusals=_refusals(given),
    )


def _note(form: Form, *, system_text: bool) -> Note | None:
    if not form.system:
        return Note.NO_SYSTEM_ROLE
    return None if system_text else Note.SYSTEM_DROPPED


_FIELD_OF = {
    "opened_2": "multi_turn",
    "opened_3": "later_turns",
    "reasoned_before": "reasoning",
    "thought_before": "inline_think",
    "tools": "tools",
    "tools_2": "tools_multi_turn",
}


def _refusals(given: Mapping[str, Outcome]) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(field=field, message=failure.message)
        for scene, field in _FIELD_OF.items()
        if (failure := given[scene].failure) is not None
    )
