"""Data flow through every construct of Jinja2: which variables what is printed depends on."""

from __future__ import annotations

import random
import warnings

import pytest
from jinja2 import DictLoader, Environment
from template_grammar import DOMAINS, FILES, Grammar, assignments

from prefixctl.core.prompt import Parameter, Volatility
from prefixctl.lint.evaluate.statements import read_template
from prefixctl.lint.evaluate.syntax import parse
from prefixctl.lint.evaluate.value import concat, text_value
from prefixctl.lint.measure import Measure
from prefixctl.lint.tokens import EstimatedTokens

SCOPES = {
    "ask": Volatility.REQUEST,
    "who": Volatility.USER,
    "chat": Volatility.SESSION,
    "hits": Volatility.REQUEST,
    "many": Volatility.REQUEST,
}
PLAIN = "x"
PARAMETERS = {n: Parameter(name=n, scope=s) for n, s in SCOPES.items()} | {
    "plain": Parameter(name="plain", scope=Volatility.VERSION, value=PLAIN)
}
ENVIRONMENT = Environment(
    loader=DictLoader(FILES), extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]
)


def claimed(source: str) -> set[str]:
    """The variables that stand ahead of the text behind a template, says static analysis."""
    value = read_template(parse(source), parameters=PARAMETERS, loader=FILES.get)
    measure = Measure(EstimatedTokens())
    measure.read(concat([value, text_value("\nText that all requests share.")]))
    return {
        e.hole.cause.variable.split(".")[0]
        for e in measure.exposures
        if e.tokens_behind and e.hole.cause.volatility and e.hole.cause.volatility.is_dynamic
    }


def shown(source: str) -> set[str]:
    """The variables that change what is printed, by rendering with all values of all of them."""
    template = ENVIRONMENT.from_string(source)
    names = {n for n in DOMAINS if n in source or any(n in f for f in FILES.values())}
    outputs = {
        tuple((n, str(v)) for n, v in values.items()): template.render(values, plain=PLAIN)
        for values in assignments(names)
    }
    found = set()
    for name in names:
        groups: dict[object, set[str]] = {}
        for key, output in outputs.items():
            groups.setdefault(tuple(k for k in key if k[0] != name), set()).add(output)
        if any(len(g) > 1 for g in groups.values()):
            found.add(name)
    return found


FLOWS = {
    "a flag": "{% set f = ask == 'x' %}{% if f %}A{% else %}B{% endif %}",
    "a flag of a flag": "{% set f = ask == 'x' %}{% set g = not f %}{{ 'A' if g else 'B' }}",
    "a flag that is printed": "{% set f = ask == 'x' %}{{ f }}",
    "a counter": "{% set n = namespace(i=0) %}{% for h in hits %}{% set n.i = n.i + 1 %}"
    "{% endfor %}{{ n.i }}",
    "a list that grows": "{% set l = [] %}{% for h in hits %}{% do l.append('a') %}{% endfor %}"
    "{{ l | length }}",
    "a list that grows under a condition": "{% set l = [] %}{% if ask == 'x' %}"
    "{% do l.append('a') %}{% endif %}{{ l | join }}",
    "else of a loop": "{% for h in hits %}{% else %}none{% endfor %}",
    "rounds of static text": "{% for h in hits %}- {% endfor %}",
    "varargs": "{% macro m() %}{{ varargs | join }}{% endmacro %}{{ m('a', ask) }}",
    "kwargs": "{% macro m() %}{{ kwargs.k }}{% endmacro %}{{ m(k=ask) }}",
    "kwargs, another one": "{% macro m() %}{{ kwargs.k }}{% endmacro %}{{ m(k='a', j=ask) }}",
    "a default that reads an argument": "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(ask) }}",
    "unpacked arguments": "{% macro m(a, b) %}{{ b }}{% endmacro %}{{ m(*[who, ask]) }}",
    "caller with an argument": "{% macro m() %}{{ caller(ask) }}{% endmacro %}"
    "{% call(x) m() %}{{ x }}{% endcall %}",
    "caller that sees its own scope": "{% macro m(x) %}{{ caller() }}{% endmacro %}"
    "{% set x = who %}{% call m(ask) %}{{ x }}{% endcall %}",
    "a macro that does not see the loop": "{% set v = 'a' %}{% macro m() %}{{ v }}{% endmacro %}"
    "{% for v in hits %}{% endfor %}{{ m() }}",
    "a macro that sees later values": "{% set v = 'a' %}{% macro m() %}{{ v }}{% endmacro %}"
    "{% set v = ask %}{{ m() }}",
    "an inner macro of the same name": "{% macro m() %}{% macro m() %}{{ ask }}{% endmacro %}"
    "{{ m() }}{% endmacro %}{{ m() }}",
    "a key of a mapping": "{{ {ask: 'a'} }}",
    "a member of a mapping": "{% set d = {'a': ask, 'b': 'c'} %}{{ d.b }}{{ d['a'] }}",
    "another member of a mapping": "{% set d = {'a': ask, 'b': 'c'} %}{{ d.b }}",
    "a mapping in one branch only": "{% if ask == 'x' %}{% set d = {'a': chat} %}{% else %}"
    "{% set d = who %}{% endif %}{{ d }}",
    "a filter block": "{% filter trim %} {{ ask }} {% endfilter %}",
    "a chain of filters around a block": "{% filter length | string %}{{ ask }}{% endfilter %}",
    "import": "{% import 'm' as m %}{{ m.show(ask) }}",
    "import without context": "{% import 'm' as m %}{{ m.leak() }}",
    "import with context": "{% import 'm' as m with context %}{{ m.leak() }}",
    "from import with context": "{% from 'm' import leak with context %}{{ leak() }}",
    "a variable of a module": "{% import 'm' as m %}{{ m.tone }}",
    "include sees local names": "{% set local = ask %}{% include 'part' %}",
    "include without context": "{% include 'part' without context %}",
    "include of the first that is there": "{% include ['no', 'part'] %}",
    "super": "{% extends 'base' %}{% block head %}{{ super() }}!{% endblock %}",
    "no super": "{% extends 'base' %}{% block head %}!{% endblock %}",
    "self": "{% extends 'base' %}{% block head %}{{ ask }}{% endblock %}"
    "{% block body %}{{ self.head() }}{% endblock %}",
    "length of a loop": "{% for h in hits %}{{ loop.length }}{% endfor %}",
    "last of a loop": "{% for h in hits %}{{ ', ' if not loop.last }}{% endfor %}",
    "an index that is kept": "{% set n = namespace(i=0) %}{% for h in hits %}"
    "{% set n.i = loop.index %}{% endfor %}{{ n.i }}",
    "a namespace under a condition": "{% set n = namespace(a='x') %}{% if ask == 'x' %}"
    "{% set n.a = 'y' %}{% endif %}{{ n.a }}",
    "a namespace that is handed on": "{% macro m(s) %}{% set s.a = ask %}{% endmacro %}"
    "{% set n = namespace(a='x') %}{{ m(n) }}{{ n.a }}",
    "a block that is set": "{% set b %}<{{ ask }}>{% endset %}{{ b }}",
    "a block that is set through filters": "{% set b | upper | trim %}{{ ask }}{% endset %}{{ b }}",
    "a ternary": "{{ 'a' if ask == 'x' else 'b' }}",
    "a test": "{{ many is odd }}",
    "a test of type": "{{ ask is string }}",
    "a slice": "{{ 'abcdef'[:many] }}",
    "a joined text": "{{ 'a' ~ ask ~ 'b' }}",
    "a percent format": "{{ '%s is %s' % ('a', ask) }}",
    "a percent format of a mapping": "{{ '%(a)s' % {'a': 'b', 'c': ask} }}",
    "str.format": "{{ '{} {k}'.format('a', k=ask) }}",
    "the filter format": "{{ '%s' | format(ask) }}",
    "the filter replace": "{{ 'a x b' | replace('x', ask) }}",
    "the filter default": "{{ missing | default(ask) }}",
    "the filter select": "{{ ['x', 'y'] | select('eq', ask) | join }}",
    "the filter map": "{{ hits | map('upper') | join }}",
    "the filter groupby": "{% for g in [{'k': ask}] | groupby('k') %}{{ g.grouper }}{% endfor %}",
    "the filter batch": "{% for g in hits | batch(2) %}row{% endfor %}",
    "a recursive loop": "{% for t in [[ask], 'b'] recursive %}{% if t is string %}{{ t }}"
    "{% else %}{{ loop(t) }}{% endif %}{% endfor %}",
    "set inside for stays inside": "{% set v = 'a' %}{% for h in ['x'] %}{% set v = ask %}"
    "{% endfor %}{{ v }}",
    "set inside if goes out": "{% if plain == 'x' %}{% set v = ask %}{% endif %}{{ v }}",
    "set inside with stays inside": "{% set v = 'a' %}{% with %}{% set v = ask %}{% endwith %}"
    "{{ v }}",
    "set in one branch only": "{% if ask == 'x' %}{% set v = 'b' %}{% endif %}{{ v }}",
    "a break": "{% for h in ['a', 'b'] %}{% if ask == 'x' %}{% break %}{% endif %}{{ h }}"
    "{% endfor %}",
    "a continue": "{% for h in ['a', 'b'] %}{% if ask == 'x' %}{% continue %}{% endif %}{{ h }}"
    "{% endfor %}",
    "a loop with a condition": "{% for h in ['x', 'y'] if h == ask %}{{ h }}{% endfor %}",
    "earlier rounds": "{% set n = namespace(a='', b='') %}{% for h in ['x', 'y'] %}{{ n.a }}"
    "{% set n.a = n.b %}{% set n.b = ask %}{% endfor %}",
    "and": "{{ ask == 'x' and 'a' }}",
    "or": "{{ ('' if ask == 'x' else 'b') or 'a' }}",
    "what is computed and never printed": "{% set v = ask %}{% do [].append(who) %}",
}


@pytest.mark.parametrize("source", FLOWS.values(), ids=FLOWS.keys())
def test_the_variables_are_those_that_renders_show(source):
    assert claimed(source) == shown(source)


def test_lorem_ipsum_is_random():
    measure = Measure(EstimatedTokens())
    measure.read(read_template(parse("{{ lipsum(n=1) }} static text")))
    assert [e.hole.cause.variable for e in measure.exposures] == ["lipsum()"]


def check_many(seeds: range) -> tuple[int, float]:
    """Compare for many random templates; how many were compared, and how many claims are right."""
    compared = right = claims = 0
    for seed in seeds:
        source = Grammar(random.Random(seed)).template()
        try:
            wanted = shown(source)
        except Exception:  # a template that no values can render says nothing
            continue
        found = claimed(source)
        assert wanted <= found, f"seed {seed} misses {wanted - found}: {source}"
        compared += 1
        claims += len(found)
        right += len(found & wanted)
    return compared, right / max(claims, 1)


@pytest.mark.parametrize("start", [0])
def test_random_templates_hide_nothing(start):
    compared, precision = check_many(range(start, start + 150))
    assert compared > 120
    assert precision > 0.7


@pytest.mark.slow
def test_many_random_templates_hide_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compared, precision = check_many(range(1000, 3500))
    assert compared > 2200
    assert precision > 0.7
