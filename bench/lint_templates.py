"""Templates for `bench/lint.py`: bad ones with one defect of 11 kinds each, and harmless twins.

A shape is a text with `<<gaps>>`: what fills them is drawn by kind from `lint_words.py`. `§` stands
where the defect is, and is taken out again; a text without it is harmless.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from lint_words import (
    CHINESE,
    CLOCK_CALLS,
    HARMLESS,
    NAMES,
    PERSONAL,
    PLAIN,
    PY_CLOCKS,
    PY_RANDOM,
    RANDOM_CALLS,
    SECRETS,
    SENTENCES,
)

MARK = "§"
_GAP = re.compile(r"<<(\w+)>>")
VALUE_KINDS = ("clock", "random", "user", "tenant", "session", "retrieved", "private")
KINDS = (*VALUE_KINDS, "order", "tools", "history", "white space")
CONDITION = "jinja condition"

SHAPES = (
    ("jinja print", "p.j2", "<<label>>§{{ <<call>> }}\n<<static>>"),
    ("jinja print", "p.j2", "<<line>>\n<<label>>§{{ <<call>> }}\n<<static>>"),
    ("jinja set", "p.jinja", "{% set v = <<value>> %}\n<<label>>§{{ v }}\n<<static>>"),
    ("jinja set of a call", "p.jinja", "§{% set v = <<computed>> %}\n<<label>>{{ v }}\n<<static>>"),
    ("jinja macro", "p.jinja2",
     "{% macro head(x) -%}\n<<label>>§{{ x }}\n{%- endmacro %}\n{{ head(<<value>>) }}\n<<static>>"),
    ("jinja include", "p.j2", "<<line>>\n§{% include 'part.inc' %}\n<<static>>"),
    ("jinja filters", "p.j2", "<<label>>§{{ <<value>> <<filters>> }}\n<<static>>"),
    ("jinja concat", "p.j2", "§{{ 'For ' ~ <<value>> }}\n<<static>>"),
    ("jinja percent", "p.j2", "§{{ 'For %s' % <<value>> }}\n<<static>>"),
    ("jinja format", "p.j2", "§{{ 'For {}.'.format(<<value>>) }}\n<<static>>"),
    ("jinja if", "p.j2", "{% if debug %}\n<<label>>§{{ <<value>> }}\n{% endif %}\n<<static>>"),
    (CONDITION, "p.j2",
     "§{% if <<value>> == 'alpha' %}Be formal.{% else %}Be brief.{% endif %}\n<<static>>"),
    ("jinja call", "p.j2", "{% macro box() %}<box>{{ caller() }}</box>{% endmacro %}\n"
     "{% call box() %}\n§{{ <<value>> }}\n{% endcall %}\n<<static>>"),
    ("jinja namespace", "p.j2", "{% set ns = namespace(out='') %}\n{% set ns.out = <<value>> %}\n"
     "<<label>>§{{ ns.out }}\n<<static>>"),
    ("f-string", "prompts.py", 'def build_prompt(ctx):\n    return f"""You are an assistant.\n'
     '<<label>>§{<<code>>}\n<<static>>"""\n'),
    ("python format", "prompts.py", 'SYSTEM_PROMPT = """\n<<label>>§{<<word>>}\n<<static>>"""\n'),
    ("format text", "prompt.txt", "<<label>>§{<<value>>}\n<<static>>"),
    ("yaml config", "agent.yaml",
     "system_prompt: |\n  <<label>>§{{ <<value>> }}\n<<indented>>temperature: 0\n"),
    ("json messages", "chat.json",
     '{"messages": [\n {"role": "system",\n'
     '  "content": "<<label>>§{{ <<value>> }}\\n<<json>>"}\n]}\n'),
    ("handlebars", "prompt.hbs", "<<label>>§{{<<value>>}}\n<<static>>"),
    ("handlebars raw", "prompt.hbs", "<<label>>§{{{<<value>>}}}\n<<static>>"),
    ("handlebars if", "p.hbs", "<<label>>§{{#if <<value>>}}{{<<value>>}}{{/if}}\n<<static>>"),
    ("prompty", "shop.prompty",
     "---\nname: Shop\nmodel:\n  api: chat\n---\nsystem:\n<<label>>§{{<<value>>}}\n<<static>>\n"
     "user:\nHello\n"),
    ("dotprompt", "shop.prompt", "---\nmodel: googleai/gemini\ninput:\n  schema:\n    a: string\n"
     '---\n{{role "system"}}\n<<label>>§{{<<value>>}}\n<<static>>'),
)  # fmt: skip
"""A value ahead of static text: name, file, text."""

BEHIND = (
    ("behind", "p.j2", "<<static>><<label>>{{ <<value>> }}\n"),
    ("behind", "p.j2", "<<static>>{% set v = <<value>> %}{{ v | trim }}\n"),
    ("behind", "p.j2", "<<static>>{% if <<value>> %}{{ <<value>> }}{% endif %}\n"),
    ("behind", "prompts.py", 'def build_prompt(ctx):\n    return f"""<<static>>{<<code>>}\n"""\n'),
    ("behind", "prompt.txt", "<<static>><<label>>{<<value>>}\n"),
    ("behind", "agent.yaml", "system_prompt: |\n<<indented>>  {{ <<value>> }}\ntemperature: 0\n"),
    ("behind", "chat.json", '{"messages": [\n {"role": "system", "content": "<<json>>"},\n'
     ' {"role": "user", "content": "{{ <<value>> }}"}\n]}\n'),
    ("behind", "prompt.hbs", "<<static>><<label>>{{<<value>>}}\n"),
    ("behind", "shop.prompty",
     "---\nname: Shop\n---\nsystem:\n<<static>>\nuser:\n<<label>>{{<<value>>}}\n"),
    ("behind", "shop.prompt", '---\nmodel: googleai/gemini\n---\n{{role "system"}}\n<<static>>'
     '{{role "user"}}\n{{<<value>>}}\n'),
    ("unprinted", "p.j2", "{% set unused = <<value>> %}\n<<static>>"),
    ("unprinted", "p.j2", "{% macro never(x) %}{{ <<value>> }}{% endmacro %}\n<<static>>"),
    ("unprinted", "p.j2", "{# {{ <<value>> }} #}\n<<static>>"),
    ("unprinted", "p.j2", "{% if false %}{{ <<value>> }}{% endif %}\n<<static>>{{ tone }}"),
    ("unprinted", "p.j2", "{% raw %}{{ <<value>> }}{% endraw %}\n<<static>>"),
    ("unprinted", "p.j2", "{% do log(<<value>>) %}\n<<static>>"),
    ("constant", "p.j2", "{% set <<word>> = 'noon' %}\nIt is {{ <<word>> }}.\n<<static>>"),
    ("constant", "p.j2",
     "{% set ns = namespace(<<word>>='noon') %}\n{{ ns.<<word>> }}\n<<static>>"),
    ("constant", "p.j2", "{% macro show(<<word>>) %}{{ <<word>> }}{% endmacro %}\n"
     "{{ show('noon') }}\n<<static>>"),
    ("constant", "p.j2", "{% with <<word>> = 'noon' %}{{ <<word>> }}{% endwith %}\n<<static>>"),
    ("constant", "p.j2",
     "{% for <<word>> in ['one', 'two'] %}{{ <<word>> }} {% endfor %}\n<<static>>"),
    ("declared", "prompt.yaml", "sections:\n  - {kind: system_prompt, file: system.md.j2}\n"
     "parameters:\n  <<word>>: {scope: version, value: noon}\n"),
    ("harmless name", "p.j2", "{{ <<harmless>> }}\n<<static>>"),
    ("harmless name", "prompt.txt", "{<<harmless>>}\n<<static>>"),
    ("harmless name", "prompt.hbs", "{{<<harmless>>}}\n<<static>>"),
    ("harmless name", "prompts.py",
     'def build_prompt(ctx):\n    return f"""{<<harmless>>}\n<<static>>"""\n'),
    ("plain words", "p.j2", "<<static>><<plain>>\n<<static>>"),
    ("plain words", "system.md", "<<static>><<plain>>\n<<static>>"),
    ("plain words", "prompt.txt", "<<static>><<plain>>\n<<static>>"),
)  # fmt: skip
"""Harmless twins of the same: behind the static text, never printed, fixed, in plain words."""

ORDER = (
    ("jinja order", "p.j2", "<<label>>§{{ <<value>> | to_json }}\n<<static>>"),
    ("jinja order", "p.j2", "<<label>>§{{ <<value>> | json_dumps }}\n<<static>>"),
    ("jinja order", "p.j2",
     "§{% for key, value in <<value>>.items() %}{{ key }}: {{ value }}\n{% endfor %}<<static>>"),
    ("jinja order", "p.j2",
     "§{% for k, v in <<value>> | items %}- {{ k }} = {{ v }}\n{% endfor %}<<static>>"),
    ("jinja order", "p.j2", "§{% for k in <<value>>.keys() %}{{ k }} {% endfor %}\n<<static>>"),
    *(("f-string order", "prompts.py",
       f'def build_prompt(ctx):\n    return f"""Facts:\n§{{{code}}}\n<<static>>"""\n')
      for code in ("json.dumps(<<value>>)", "', '.join(set(<<value>>))", "set(<<value>>)",
                   "str({*<<value>>})")),
)  # fmt: skip
ORDERED = (
    ("ordered", "p.j2", "{{ <<value>> | to_json(sort_keys=true) }}\n<<static>>"),
    ("ordered", "p.j2",
     "{% for k, v in <<value>> | dictsort %}{{ k }}: {{ v }}\n{% endfor %}\n<<static>>"),
    ("ordered", "p.j2", "{% for k in <<value>> | sort %}{{ k }} {% endfor %}\n<<static>>"),
    ("ordered", "p.j2",
     "{% for k, v in {'a': 'one', 'b': 'two'}.items() %}{{ k }}{{ v }}{% endfor %}\n<<static>>"),
    ("ordered", "p.j2", "{{ {'rule': 'short', 'tone': 'calm'} | tojson }}\n<<static>>"),
    ("ordered", "prompts.py", 'def build_prompt(ctx):\n    return f"""'
     '{json.dumps(<<value>>, sort_keys=True)}\n<<static>>"""\n'),
)  # fmt: skip
_TURN = "{{ m['role'] }}: {{ m['content'] }}\n"
_TURNS = "{% for m in messages %}\n"
_END = "{% endfor %}\n{% if add_generation_prompt %}<|assistant|>{% endif %}\n"
TOOLS = (
    ("jinja tools", "p.j2", "You have:\n§{{ <<value>> | tojson }}\n<<static>>"),
    ("jinja tools", "p.j2", "You have:\n§{% for tool in <<value>> %}\n"
     "- {{ tool.name }}: {{ tool.description }}\n{% endfor %}\n<<static>>"),
    ("jinja tools", "p.j2", "§{% for t in <<value>> %}{{ t | tojson }}\n{% endfor %}<<static>>"),
    ("jinja tools", "p.j2", "§{{ <<value>> | map(attribute='name') | join(', ') }}\n<<static>>"),
    ("chat template", "chat_template.jinja",
     "{{ bos_token }}\n§{{ tools | tojson }}\n" + _TURNS + _TURN + _END),
)  # fmt: skip
TOOLS_SORTED = (
    ("tools sorted", "p.j2", "{% for t in <<value>> | sort(attribute='name') %}- {{ t.name }}\n"
     "{% endfor %}\n<<static>>"),
    ("tools sorted", "p.j2",
     "{{ <<value>> | map(attribute='name') | sort | join(', ') }}\n<<static>>"),
    ("tools sorted", "p.j2", "{{ <<value>> | sort(attribute='name') | tojson }}\n<<static>>"),
    ("tools behind", "p.j2", "<<static>>{% for t in <<value>> %}{{ t.name }}\n{% endfor %}"),
)  # fmt: skip
HISTORY = tuple(
    ("chat template", "chat_template.jinja", text + _TURN + _END)
    for text in (
        _TURNS + "§{% if loop.last %}<|system|>{{ messages[0]['content'] }}\n{% endif %}",
        "{% set system = messages[0]['content'] %}\n" + _TURNS
        + "§{% if loop.last and m['role'] == 'user' %}{{ system }}\n{% endif %}",
        _TURNS + "§{% if m == messages[-1] and tools %}{{ tools | tojson(sort_keys=true) }}\n"
        "{% endif %}",
        _TURNS + "§{% if loop.index == loop.length %}{{ messages[0].content }}\n{% endif %}",
    )
)  # fmt: skip
STEADY = tuple(
    ("steady chat", "chat_template.jinja", text + _END)
    for text in (
        _TURNS + "<|{{ m['role'] }}|>{{ m['content'] }}\n",
        "{{ bos_token }}" + _TURNS + "{% if m['role'] == 'system' %}<<SYS>>{{ m['content'] }}\n"
        "{% else %}[{{ m['role'] }}]{{ m['content'] }}{% endif %}{{ eos_token }}",
        "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}\n{% endif %}"
        + _TURNS + _TURN,
    )
)  # fmt: skip
PRIVATE = tuple(
    ("plain text", name, "<<static>>§<<secret>>\n<<static>>")
    for name in ("system.txt", "prompt.md", "p.j2", "prompt.txt")
)
BAD_FORMS = {"order": ORDER, "tools": TOOLS, "history": HISTORY}
GOOD_FORMS = {"order": ORDERED, "tools": TOOLS_SORTED, "history": STEADY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One template.

    Attributes:
        kind: The kind of defect it has, or would have.
        shape: How it is written.
        files: Contents by path; the first is the one to lint.
        line: The line of the defect; None for a harmless one.
    """

    kind: str
    shape: str
    files: dict[str, bytes]
    line: int | None


@dataclass(slots=True)
class Maker:
    """Draws cases from a random source."""

    random: random.Random

    def static(self) -> str:
        """Static text, more than a block of it."""
        if self.random.random() < 0.15:
            return "\n".join(self.random.sample(CHINESE, 3)) + "\n"
        return "\n".join(self.random.sample(SENTENCES, self.random.randint(4, 9))) + "\n"

    def case(self, kind: str, form: tuple[str, str, str]) -> Case:
        """A case of a shape; one name stands in all gaps for the value."""
        shape, name, text = form
        value = self._value(kind, plain=not name.startswith("p.j"))
        text = _GAP.sub(lambda gap: self._filled(gap[1], kind, value), text)
        at = text.find(MARK)
        files = {name: text.replace(MARK, "").encode()}
        if shape == "jinja include":
            files["part.inc"] = f"{{{{ {value} }}}}\n".encode()
        if shape == "declared":
            word = value.replace(".", "_")
            files["system.md.j2"] = f"It is {{{{ {word} }}}}.\n{self.static()}".encode()
        line = text.count("\n", 0, at) + 1 if at >= 0 else None
        return Case(kind=kind, shape=shape, files=files, line=line)

    def white_space(self) -> Case:
        """A file with a byte order mark, mixed line ends or blank lines at an end."""
        text = self.static()
        lines = text.splitlines()
        odd = self.random.randrange(len(lines) - 1)
        mixed = "".join(t + ("\r\n" if i == odd else "\n") for i, t in enumerate(lines))
        shape, made, line = self.random.choice(
            [("mark", "\ufeff" + text, 1), ("mixed", mixed, odd + 1),
             ("ahead", "\n \n" + text, 1), ("behind", text + "\n  \n", len(lines) + 1)]
        )  # fmt: skip
        name = self.random.choice(["p.j2", "prompt.txt", "system.md"])
        return Case(kind="white space", shape=shape, files={name: made.encode()}, line=line)

    def _value(self, kind: str, *, plain: bool) -> str:
        names = NAMES.get(kind, NAMES["user"])
        return self.random.choice([n for n in names if n.isascii() or not plain])

    def _filled(self, gap: str, kind: str, value: str) -> str:
        """What fills a gap."""
        draw = self.random.choice
        calls = {"clock": CLOCK_CALLS, "random": RANDOM_CALLS}.get(kind, (value,))
        codes = {"clock": PY_CLOCKS, "random": PY_RANDOM}.get(kind, (value,))
        fillings: dict[str, Callable[[], str]] = {
            "value": lambda: value,
            "word": lambda: value.replace(".", "_"),
            "call": lambda: draw([value, draw(calls)]),
            "computed": lambda: draw(calls),
            "code": lambda: draw(codes),
            "filters": lambda: draw(
                ["| trim", "| upper | trim", "| string | replace('-', '')", "| default('none')"]
            ),
            "label": lambda: draw(
                ["Value: ", "It is ", "Reference ", "# ", "", "<info> ", "信息："]
            ),
            "line": lambda: draw(SENTENCES),
            "static": self.static,
            "indented": lambda: "".join(f"  {t}\n" for t in self.static().splitlines()),
            "json": lambda: json.dumps(self.static(), ensure_ascii=False)[1:-1],
            "harmless": lambda: draw(HARMLESS),
            "plain": lambda: draw(PLAIN),
            "secret": lambda: draw((*SECRETS, *PERSONAL)),
        }
        return fillings[gap]() if gap in fillings else f"<<{gap}>>"


def bad(count: int, seed: int) -> list[Case]:
    """Templates with one defect each, the kinds in turn."""
    m = Maker(random.Random(seed))
    return [_bad(m, KINDS[index % len(KINDS)]) for index in range(count)]


def _bad(m: Maker, kind: str) -> Case:
    if kind == "white space":
        return m.white_space()
    forms = BAD_FORMS.get(kind, SHAPES)
    if kind not in {"clock", "random"}:
        forms = tuple(f for f in forms if f[0] != "jinja set of a call")
    if kind == "private":
        # A condition prints no secret, so it is no leak.
        printed = tuple(f for f in forms if f[0] != CONDITION)
        forms = PRIVATE if m.random.random() < 0.6 else printed
    return m.case(kind, m.random.choice(forms))


def good(count: int, seed: int) -> list[Case]:
    """Harmless templates in the same shapes."""
    m = Maker(random.Random(seed))
    return [_good(m, KINDS[index % len(KINDS)]) for index in range(count)]


def _good(m: Maker, kind: str) -> Case:
    forms = GOOD_FORMS.get(kind, BEHIND)
    shape = m.random.choice(sorted({f[0] for f in forms}))
    # A secret is no better for standing at the end, or for being a constant.
    drawn = "user" if kind == "private" else kind
    return m.case(drawn, m.random.choice([f for f in forms if f[0] == shape]))
