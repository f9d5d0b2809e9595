"""Chat templates measured by rendering: one small template for every conclusion."""

from __future__ import annotations

import pytest

from prefixctl.lint.chat.advice import COLUMNS, rows
from prefixctl.lint.chat.measure import measure_template
from prefixctl.prompts.sandbox import FailureKind, Limits, Sandbox

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
OPENING = "{% if add_generation_prompt %}<assistant>{% endif %}"
PLAIN = TURNS + OPENING
CHATTY = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}" + OPENING
TOOLS = "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
SYSTEM = "{{ messages[0].content if messages[0].role == 'system' }}"
REST = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
ANSWER = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
LAST_USER = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def clock(pattern: str) -> str:
    return f"{{{{ strftime_now('{pattern}') }}}}"


CASES = [
    (PLAIN, {"clock_sys": "none", "sys_shared": "yes", "multi_turn": "full", "note": None,
             "reasoning": "never-rendered", "inline_think": "kept", "tools": "ignored",
             "tools_multi_turn": None, "tools_key_order": None, "tools_list_order": None,
             "emits_bos": "no", "sys_trim": "keeps-whitespace", "later_turns": "full"}),
    (clock("%H:%M:%S") + PLAIN, {"clock_sys": "second", "clock_nosys": "second"}),
    (clock("%H:%M") + PLAIN, {"clock_sys": "minute"}),
    (clock("%d %b %Y") + PLAIN, {"clock_sys": "day", "clock_tools": "day"}),
    (clock("%B %Y") + PLAIN, {"clock_sys": "day"}),
    (clock("%H") + PLAIN, {"clock_sys": "day"}),
    ("{% set t = strftime_now('%d') %}" + PLAIN, {"clock_sys": "called-not-emitted"}),
    ("{% if messages[0].role != 'system' %}" + clock("%d") + "{% endif %}" + PLAIN,
     {"clock_sys": "none", "clock_nosys": "day"}),
    ("{% if tools %}" + clock("%S") + "{% endif %}" + PLAIN,
     {"clock_sys": "none", "clock_tools": "second", "tools": "ignored"}),
    (REST + SYSTEM, {"sys_shared": "NO", "multi_turn": "REWRITES"}),
    (REST, {"note": "system-dropped", "sys_shared": "yes", "sys_trim": None}),
    ("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN,
     {"note": "no-system-role", "sys_trim": None, "sys_shared": "yes", "multi_turn": "full"}),
    (CHATTY, {"sys_trim": "trims", "multi_turn": "full"}),
    ("{% for m in messages %}<{{ m.role }}>{{ m.content.rstrip() }}{% endfor %}",
     {"sys_trim": "trims"}),
    (TURNS + "{% if add_generation_prompt %}<assistant><think>{% endif %}",
     {"multi_turn": "gen-prompt-differs", "later_turns": "gen-prompt-differs"}),
    (TURNS + OPENING + "<end>", {"multi_turn": "gen-prompt-differs"}),
    (TURNS + "\n{{ '!' }}", {"multi_turn": "REWRITES"}),
    ("{% for m in messages %}{% if loop.last %}" + SYSTEM + "{% endif %}"
     "{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}",
     {"multi_turn": "REWRITES", "sys_shared": "yes"}),
    ("{% for m in messages[-4:] %}<{{ m.role }}>{{ m.content }}{% endfor %}",
     {"multi_turn": "full", "later_turns": "REWRITES"}),
    ("{% if messages | length > 2 %}{{ raise_exception('one at a time') }}{% endif %}" + PLAIN,
     {"multi_turn": "err", "reasoning": "err", "inline_think": "err", "tools": "ignored"}),
    (ANSWER + "{{ m.reasoning_content }}{% endif %}{{ m.content }}{% endfor %}",
     {"reasoning": "kept"}),
    (LAST_USER + ANSWER + "{% if loop.index0 > ns.last %}{{ m.reasoning_content }}{% endif %}"
     "{% endif %}{{ m.content }}{% endfor %}", {"reasoning": "dropped-on-next-user-turn"}),
    (ANSWER + "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}"
     "{% endfor %}", {"inline_think": "stripped-always", "multi_turn": "full"}),
    (LAST_USER + ANSWER + "{{ m.content if loop.index0 > ns.last else "
     "m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}{% endfor %}",
     {"inline_think": "dropped-in-history"}),
    (TOOLS + PLAIN, {"tools": "shared", "tools_multi_turn": "stable",
                     "tools_key_order": "sensitive", "tools_list_order": "sensitive"}),
    (TURNS + TOOLS + OPENING, {"tools": "AFTER-USER-TEXT", "tools_multi_turn": "MOVES",
                               "multi_turn": "full"}),
    ("{% for m in messages %}{% if loop.last %}" + TOOLS + "{% endif %}<{{ m.content }}>"
     "{% endfor %}", {"tools": "shared", "tools_multi_turn": "MOVES"}),
    ("{% for t in (tools or []) %}{{ t | tojson(sort_keys=true) }}{% endfor %}" + PLAIN,
     {"tools_key_order": "normalised", "tools_list_order": "sensitive"}),
    ("{% for n in (tools or []) | map(attribute='function.name') | sort %}{{ n }}{% endfor %}"
     + PLAIN, {"tools_key_order": "normalised", "tools_list_order": "normalised"}),
    ("{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + PLAIN,
     {"tools": "err", "clock_tools": "err", "tools_multi_turn": None}),
    ("{{ bos_token }}" + PLAIN, {"emits_bos": "yes"}),
    ("{% set bos_token = '<own>' %}{{ bos_token }}" + PLAIN, {"emits_bos": "no"}),
    ("{% for t in tools %}{{ t.function.name }}{% endfor %}" + PLAIN,
     {"tools": "shared", "needs_tools": True}),
    ("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
     {"note": None, "sys_trim": "keeps-whitespace", "shows_user": True}),
    ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
     "{% if loop.last %}{% break %}{% endif %}{% endfor %}", {"multi_turn": "full"}),
    ("nothing", {"shows_user": False}),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CASES)))
def test_conclusions(sandbox, index):
    source, wanted = CASES[index]
    behaviour = measure_template(source, sandbox=sandbox)
    assert behaviour.failure is None
    assert {name: getattr(behaviour, name) for name in wanted} == wanted


BREAKING = [
    (PLAIN, False),
    (TURNS + "\n{{ '!' }}", False),
    (TOOLS + PLAIN, False),
    (REST + SYSTEM, True),
    (TURNS + TOOLS + OPENING, True),
    ("{% for m in messages[-3:] %}<{{ m.role }}>{{ m.content }}{% endfor %}", True),
    ("{% for m in messages %}{% if loop.last %}" + TOOLS + "{% endif %}<{{ m.content }}>"
     "{% endfor %}", True),
    ("{{ messages | length }}" + PLAIN, True),
]  # fmt: skip


@pytest.mark.parametrize(("source", "breaks"), BREAKING)
def test_only_a_change_of_what_was_said_breaks(sandbox, source, breaks):
    assert measure_template(source, sandbox=sandbox).breaks is breaks


HOSTILE = {
    FailureKind.TIME: "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}",
    FailureKind.MEMORY: "{{ 'x' * 10 ** 10 }}",
    FailureKind.OUTPUT: "{% for i in range(99999) %}{{ 'x' * 10240 }}{% endfor %}",
    FailureKind.FORBIDDEN: "{{ messages.__class__.__mro__ }}",
    FailureKind.INCLUDE: "{% include '../../etc/passwd' %}",
    FailureKind.SYNTAX: "{% for m in messages %}",
    FailureKind.REFUSED: "{{ raise_exception('never') }}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_cannot_be_rendered_is_a_failure(kind):
    with Sandbox(Limits(seconds=0.5)) as own:
        behaviour = measure_template(HOSTILE[kind], sandbox=own)
    assert behaviour.failure is not None
    assert behaviour.failure.kind is kind
    assert not behaviour.breaks
    assert rows(behaviour)


def test_what_turns_hostile_in_a_long_conversation_is_a_failure(sandbox):
    source = "{% if messages | length > 3 %}{{ 'x' * 10 ** 10 }}{% endif %}" + PLAIN
    failure = measure_template(source, sandbox=sandbox).failure
    assert failure is not None
    assert failure.kind is FailureKind.MEMORY


def test_refusals_are_kept_with_their_words(sandbox):
    source = "{% if messages | length > 2 %}{{ raise_exception('one') }}{% endif %}" + PLAIN
    behaviour = measure_template(source, sandbox=sandbox)
    assert ("multi_turn", "one") in {(r.field, r.message) for r in behaviour.refusals}
    (row,) = (r for r in rows(behaviour) if r.name == "multi_turn")
    assert row.advice == "refused: one"


def test_every_conclusion_has_a_row(sandbox):
    shown = rows(measure_template(clock("%d") + PLAIN, sandbox=sandbox))
    assert [r.name for r in shown] == list(COLUMNS)
    assert {r.name: r.verdict.value for r in shown}["clock_sys"] == "warn"
