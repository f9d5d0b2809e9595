"""Random templates from a grammar of all that Jinja2 has, for tests that compare with renders.

Variables are ``ask``, ``who``, ``chat`` (texts), ``hits`` (a list of texts), ``many`` (a number),
which change, and ``plain``, which does not.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

DOMAINS: Mapping[str, tuple[Any, ...]] = {
    "ask": ("x", "zed", "e w i"),
    "who": ("kim", "Lee", "x"),
    "chat": ("xe", "edit"),
    "hits": ((), ("p",), ("p", "q"), ("r", "x", "kim")),
    "many": (1, 2, 5),
}
"""Every value of every variable; none but the list is empty."""

MODULE = """\
{% set tone = 'calm' %}
{% macro show(v) %}<{{ v }}>{% endmacro %}
{% macro leak() %}({{ ask }}){% endmacro %}
{% macro wrap() %}[{{ caller() }}]{% endmacro %}
"""
PARENT = """\
Top {% block head %}base {{ who }}{% endblock %} mid {% block body %}body{% endblock %} end
"""
FILES = {
    "m": MODULE,
    "part": "part {{ chat }} {{ local | default('none') }} ",
    "still": "still ",
    "base": PARENT,
}


def assignments(names: set[str]) -> Iterator[dict[str, Any]]:
    """All values of the named variables."""
    used = [n for n in DOMAINS if n in names]
    for values in itertools.product(*(DOMAINS[n] for n in used)):
        yield {n: list(v) if isinstance(v, tuple) else v for n, v in zip(used, values, strict=True)}


@dataclass(slots=True)
class Grammar:
    """Makes one template after the other from a random source.

    Attributes:
        random: The random source.
        texts: Names in scope that stand for a text.
        lists: Names in scope that stand for a list.
        spaces: Names of namespaces in scope.
        macros: Names of macros in scope.
        inside: Whether a loop is open.
        count: How many names were made.
    """

    random: random.Random
    texts: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    spaces: list[str] = field(default_factory=list)
    macros: list[str] = field(default_factory=list)
    inside: int = 0
    count: int = 0

    def template(self) -> str:
        """A whole template."""
        if self.random.random() < 0.06:
            return self._child()
        return self.body(3)

    def body(self, depth: int) -> str:
        """Statements and text."""
        return "".join(self.statement(depth) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth: int) -> str:
        """One statement, or text."""
        if depth <= 0:
            return self._leaf()
        form = self.random.choice(_STATEMENTS)
        return form(self, depth - 1)

    def _leaf(self) -> str:
        return self.random.choice([self._word(), "{{ " + self.text(1) + " }}"])

    def _word(self) -> str:
        return self.random.choice(["Answer. ", "Be kind ", "ok ", "\n"])

    def _name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def _pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def text(self, depth: int) -> str:
        """An expression that gives a text."""
        if depth <= 0 or self.random.random() < 0.35:
            return self._pick("ask", "who", "chat", "'lit'", "'lit'", "plain", *self.texts)
        return self.random.choice(_TEXTS)(self, depth - 1)

    def number(self, depth: int) -> str:
        """An expression that gives a number."""
        own = ["loop.index", "loop.index0", "loop.length", "loop.revindex"] if self.inside else []
        if depth <= 0:
            return self._pick("many", "many", "2", *own)
        return self._pick(
            "many",
            "2",
            *own,
            f"({self.number(depth - 1)} + {self.number(depth - 1)})",
            f"({self.number(depth - 1)} % 2)",
            f"({self.items(depth - 1)} | length)",
            f"({self.text(depth - 1)} | length)",
        )

    def items(self, depth: int) -> str:
        """An expression that gives a list of texts."""
        if depth <= 0:
            return self._pick("hits", "['a', 'b']", *self.lists)
        inner = self.items(depth - 1)
        return self._pick(
            "hits",
            "['a', 'b']",
            "[" + self.text(depth - 1) + ", 'z']",
            *self.lists,
            f"({inner} | map('upper') | list)",
            f"({inner} | select('ne', {self._pick('ask', 'who', repr('x'))}) | list)",
            f"({inner} | reject('equalto', 'p') | list)",
            f"{inner}[:2]",
            f"{inner}[:{self.number(0)}]",
            f"({inner} | sort)",
            f"({inner} | unique | list)",
            f"({inner} | reverse | list)",
            f"({inner} + ['k'])",
            f"({self.text(depth - 1)} ~ '').split(' ')",
        )

    def test(self, depth: int) -> str:
        """An expression that is true or false."""
        own = ["loop.last", "loop.first", "loop.index > 1"] if self.inside else []
        if depth <= 0:
            return self._pick("ask == 'x'", "plain == who", "who == ask", "many > 1", *own)
        left = self._pick("ask", "who", "chat", *self.texts)
        right = self._pick("'x'", "who", self.text(depth - 1))
        return self._pick(
            f"{left} == {right}",
            f"{self.text(0)} in {self._pick('hits', repr(['x', 'kim']))}",
            f"not {self.test(depth - 1)}",
            f"({self.test(depth - 1)} and {self.test(depth - 1)})",
            f"({self.test(depth - 1)} or {self.test(depth - 1)})",
            f"{self.number(1)} is odd",
            f"{self.number(1)} > 2",
            f"{self.number(0)} is divisibleby 2",
            f"{self.text(0)} is eq({self._pick(repr('x'), 'who')})",
            f"{self.items(0)} | length > 1",
            f"{self.text(0)} is string",
            *own,
            *self.texts[-1:],
        )

    def scoped(self, depth: int, *, inside: int = 0, texts: tuple[str, ...] = ()) -> str:
        """A body whose own names end with it."""
        kept = [list(self.texts), list(self.lists), list(self.spaces), list(self.macros)]
        outer = self.inside
        self.inside = inside if inside >= 0 else outer
        self.texts += texts
        made = self.body(depth)
        self.texts, self.lists, self.spaces, self.macros = kept
        self.inside = outer
        return made

    def _child(self) -> str:
        parts = ["{% extends 'base' %}"]
        name = self._name("top")
        parts.append(f"{{% set {name} = {self.text(1)} %}}")
        if self.random.random() < 0.7:
            own = self._pick("{{ super() }}", "no", "{{ self.body() }}")
            parts.append(f"{{% block head %}}{own}{{{{ {name} }}}}{{% endblock %}}")
        if self.random.random() < 0.5:
            parts.append("{% block body %}{{ super() }}" + self.scoped(1) + "{% endblock %}")
        return "".join(parts)


def _output(g: Grammar, depth: int) -> str:
    return "{{ " + g.text(depth + 1) + " }}"


def _print_test(g: Grammar, depth: int) -> str:
    return "{{ " + g._pick(g.test(1), g.number(1)) + " }}"


def _if(g: Grammar, depth: int) -> str:
    made = "{% if " + g.test(2) + " %}" + g.scoped(depth, inside=-1)
    if g.random.random() < 0.3:
        made += "{% elif " + g.test(1) + " %}" + g.scoped(depth, inside=-1)
    if g.random.random() < 0.5:
        made += "{% else %}" + g.scoped(depth, inside=-1)
    return made + "{% endif %}"


def _conditional_set(g: Grammar, depth: int) -> str:
    name = g._name("v")
    made = f"{{% if {g.test(1)} %}}{{% set {name} = {g.text(depth)} %}}"
    if g.random.random() < 0.6:
        made += f"{{% else %}}{{% set {name} = {g.text(1)} %}}"
    g.texts.append(name)
    return made + "{% endif %}"


def _for(g: Grammar, depth: int) -> str:
    name = g._name("x")
    source = g.items(2)
    guard = f" if {name} != {g._pick('ask', 'who', repr('x'))}" if g.random.random() < 0.2 else ""
    body = g.scoped(depth, inside=1, texts=(name,))
    if g.random.random() < 0.15:
        body += "{% if " + g.test(1) + " %}{% " + g._pick("break", "continue") + " %}{% endif %}"
        body += g._word()
    other = "{% else %}" + g.scoped(0) if g.random.random() < 0.3 else ""
    return f"{{% for {name} in {source}{guard} %}}{body}{other}{{% endfor %}}"


def _for_pairs(g: Grammar, depth: int) -> str:
    key, value = g._name("k"), g._name("w")
    mapping = "{" + f"'one': {g.text(1)}, {g._pick('ask', 'plain', repr('two'))}: {g.text(0)}" + "}"
    body = g.scoped(depth, inside=1, texts=(key, value))
    source = g._pick(f"{mapping}.items()", f"{mapping} | dictsort")
    return f"{{% for {key}, {value} in {source} %}}{body}{{% endfor %}}"


def _groups(g: Grammar, depth: int) -> str:
    name = g._name("g")
    how = g._pick("batch(2)", f"batch({g.number(0)})")
    inner = g._pick("{{ " + name + " | length }}", "{{ " + name + " | join('-') }}", "row ")
    return f"{{% for {name} in {g.items(1)} | {how} %}}{inner}{{% endfor %}}"


def _recursive(g: Grammar, depth: int) -> str:
    name = g._name("t")
    return (
        f"{{% for {name} in [[{g.text(0)}], 'leaf'] recursive %}}"
        f"{{% if {name} is string %}}{{{{ {name} }}}}"
        f"{{% else %}}({{{{ loop({name}) }}}}){{% endif %}}"
        "{% endfor %}"
    )


def _set(g: Grammar, depth: int) -> str:
    name = g._name("s")
    value = g._pick(g.text(2), g.text(2), g.test(2), g.number(2))
    g.texts.append(name)
    return f"{{% set {name} = {value} %}}"


def _set_two(g: Grammar, depth: int) -> str:
    one, two = g._name("p"), g._name("p")
    made = f"{{% set {one}, {two} = {g.text(1)}, {g.text(1)} %}}"
    g.texts += [one, two]
    return made


def _set_block(g: Grammar, depth: int) -> str:
    name = g._name("b")
    chain = g._pick("", "", " | trim", " | upper | trim")
    made = f"{{% set {name}{chain} %}}{g.scoped(depth, inside=-1)}{{% endset %}}"
    g.texts.append(name)
    return made


def _space(g: Grammar, depth: int) -> str:
    name = g._name("ns")
    made = f"{{% set {name} = namespace(v={g._pick(repr('none'), '0')}, w='') %}}"
    g.spaces.append(name)
    g.texts += [f"{name}.v", f"{name}.w"]
    return made


def _write(g: Grammar, depth: int) -> str:
    if not g.spaces:
        return _space(g, depth)
    name = g.random.choice(g.spaces)
    value = g._pick(f"{name}.v ~ '+'", g.text(1), f"{name}.w ~ {g.text(0)}", g.number(0), "'set'")
    return f"{{% set {name}.{g._pick('v', 'w')} = {value} %}}"


def _append(g: Grammar, depth: int) -> str:
    if not g.lists:
        name = g._name("l")
        g.lists.append(name)
        return f"{{% set {name} = [] %}}"
    name = g.random.choice(g.lists)
    return f"{{% do {name}.append({g._pick(g.text(0), repr('item'))}) %}}"


def _macro(g: Grammar, depth: int) -> str:
    name = g._name("m")
    outer = list(g.macros)
    body = g.scoped(depth, texts=("a", "b"))
    extra = g._pick("", "", "{{ varargs | join }}", "{{ kwargs.k }}", "{{ caller() if caller }}")
    g.macros = [*outer, name]
    return f"{{% macro {name}(a, b='dflt') %}}{body}{extra}{{% endmacro %}}"


def _shadow(g: Grammar, depth: int) -> str:
    name = g._name("q")
    return (
        f"{{% macro {name}() %}}{{% macro {name}() %}}in {{{{ {g.text(0)} }}}}{{% endmacro %}}"
        f"out {{{{ {name}() }}}}{{% endmacro %}}{{{{ {name}() }}}}"
    )


def _call(g: Grammar, depth: int) -> str:
    if not g.macros:
        return _macro(g, depth)
    name = g.random.choice(g.macros)
    given = g._pick(
        g.text(1),
        f"{g.text(0)}, {g.text(0)}",
        f"b={g.text(0)}",
        f"{g.text(0)}, 'n', {g.text(0)}",
        f"'n', k={g.text(0)}",
        f"*[{g.text(0)}]",
        f"**{{'a': {g.text(0)}}}",
    )
    return f"{{{{ {name}({given}) }}}}"


def _call_block(g: Grammar, depth: int) -> str:
    name = g._name("c")
    given, names = g._pick("", "1"), "(y)"
    argument = g.text(0) if given else ""
    head = f"{{% call{names if given else ''} {name}() %}}"
    body = g.scoped(depth, texts=("y",) if given else ())
    return (
        f"{{% macro {name}() %}}<{{{{ caller({argument}) }}}}>{{% endmacro %}}"
        f"{head}{body}{{% endcall %}}"
    )


def _filter_block(g: Grammar, depth: int) -> str:
    chain = g._pick("trim", "upper", "upper | trim", "replace('e', " + g.text(0) + ")", "length")
    return f"{{% filter {chain} %}}{g.scoped(depth, inside=-1)}{{% endfilter %}}"


def _with(g: Grammar, depth: int) -> str:
    name = g._name("h")
    value = g.text(1)
    return (
        f"{{% with {name} = {value} %}}{g.scoped(depth, inside=-1, texts=(name,))}{{% endwith %}}"
    )


def _import(g: Grammar, depth: int) -> str:
    value = g.text(0)
    context = g._pick("", "", " with context")
    return g._pick(
        f"{{% import 'm' as m{context} %}}{{{{ m.show({value}) }}}}",
        f"{{% import 'm' as m{context} %}}{{{{ m.leak() }}}}{{{{ m.tone }}}}",
        f"{{% from 'm' import show as sh, tone{context} %}}{{{{ sh({value}) }}}}{{{{ tone }}}}",
        f"{{% from 'm' import leak{context} %}}{{{{ leak() }}}}",
        f"{{% from 'm' import wrap %}}{{% call wrap() %}}{g.scoped(0)}{{% endcall %}}",
    )


def _include(g: Grammar, depth: int) -> str:
    return g._pick(
        "{% include 'part' %}",
        "{% include 'still' %}",
        "{% set local = " + g.text(0) + " %}{% include 'part' %}",
        "{% include ['no', 'still'] %}",
    )


def _word(g: Grammar, depth: int) -> str:
    return g._word()


_STATEMENTS = [
    _output,
    _output,
    _print_test,
    _if,
    _if,
    _conditional_set,
    _for,
    _for,
    _for_pairs,
    _groups,
    _recursive,
    _set,
    _set,
    _set_two,
    _set_block,
    _space,
    _write,
    _write,
    _append,
    _append,
    _macro,
    _shadow,
    _call,
    _call,
    _call_block,
    _filter_block,
    _with,
    _import,
    _include,
    _word,
]

_TEXTS = [
    lambda g, d: f"({g.text(d)} ~ {g.text(d)})",
    lambda g, d: f"({g.text(d)} if {g.test(d)} else {g.text(d)})",
    lambda g, d: f"({g.text(d)} if {g.test(d)})",
    lambda g, d: f"({g.text(d)} or {g.text(d)})",
    lambda g, d: f"({g.text(d)} and {g.text(d)})",
    lambda g, d: f"({g.text(d)} | {g._pick('upper', 'trim', 'title', 'e', 'length', 'wordcount')})",
    lambda g, d: f"({g.text(d)} | default({g.text(d)}))",
    lambda g, d: f"({g.text(d)} | replace({g._pick(repr('i'), repr('e'), 'ask')}, {g.text(0)}))",
    lambda g, d: f"({g.text(d)} ~ '')[:{g._pick('2', g.number(0))}]",
    lambda g, d: f"'v %s w %s' % ({g.text(d)}, {g.text(d)})",
    lambda g, d: f"'n %s' | format({g.text(d)})",
    lambda g, d: "'{} and {}'" + f".format({g.text(d)}, {g.text(d)})",
    lambda g, d: "'{k} is'" + f".format(k={g.text(d)})",
    lambda g, d: f"({g.items(d)} | join({g._pick(repr(', '), g.text(0))}))",
    lambda g, d: f"({g.items(d)} | {g._pick('first', 'last', 'length')})",
    lambda g, d: "{'x': 'one', 'zed': " + g.text(d) + "}[" + g._pick("ask", "'x'", "'zed'") + "]",
    lambda g, d: "{" + f"{g.text(0)}: {g.text(d)}" + "}",
    lambda g, d: "{'k': " + g.text(d) + "}.k",
    lambda g, d: f"{g.number(d)}",
    lambda g, d: f"('ab' ~ {g.text(d)}).upper()",
    lambda g, d: f"(['c', {g.text(d)}] | groupby('0') | map('first') | join)",
]
