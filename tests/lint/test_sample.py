"""Sampling: what two renders show against what static analysis says."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from prefixctl.core.prompt import Parameter, Volatility
from prefixctl.lint.sample import CLOCKS, Agreement, Sampling, generate_samplings, sample_template
from prefixctl.lint.source import UnreadableError
from prefixctl.prompts.sandbox import FailureKind, Limits, Sandbox


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


AGREEING = [
    ("Hello {{ user_name }}, welcome.", 6, ("user_name",)),
    ("It is {{ strftime_now('%H:%M') }}.", 6, ("strftime_now",)),
    ("It is {{ now().strftime('%A, %d %B %Y') }}.", 6, ("now",)),
    ("Today: {{ now.isoformat() }}", 7, ("now",)),
    ("{% if question == 'help' %}A{% else %}B{% endif %}", 0, ("question",)),
    ("{% if 'help' in question %}A{% else %}B{% endif %}", 0, ("question",)),
    ("Read: {% for d in documents %}- {{ d.title }}{% endfor %}", 6, ("documents",)),
    ("{% set t = 'Hi ' ~ user.name %}So {{ t }}", 6, ("user",)),
    ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}{{ m(session_id) }}", 4, ("session_id",)),
    ("{{ 'abc' | upper }} {{ question }}", 4, ("question",)),
    ("{{ 'To %s' | format(user_name) }}", 3, ("user_name",)),
    ("Draw {{ ['a', 'b', 'c'] | random }}", 5, ()),
    ("{% for k, v in profile.items() %}{% endfor %}{{ user_id }}", 0, ("user_id",)),
    ("{% include 'part.jinja' %}", 4, ("question",)),
    ("Nothing {{ tone }} changes.", None, ()),
    ("Plain.", None, ()),
]


@pytest.mark.parametrize(("source", "chars", "variables"), AGREEING)
def test_renders_part_where_static_analysis_says(sandbox, source, chars, variables):
    files = {"part.jinja": "Ask {{ question }}"} if "include" in source else {}
    sample = sample_template(source, files=files, sandbox=sandbox)
    assert sample.agreement is Agreement.AGREES
    assert sample.first_difference_chars == chars
    assert sample.static_end_chars == chars
    assert sample.variables == variables


def test_what_static_analysis_does_not_know_is_missed(sandbox):
    sets = [Sampling(values={"here": "one"}), Sampling(values={"here": "two"})]
    sample = sample_template("Nothing {{ here }} changes.", samplings=sets, sandbox=sandbox)
    assert sample.agreement is Agreement.MISSED
    assert sample.first_difference_chars == 8
    assert sample.excerpts == ("one changes.", "two changes.")
    assert sample.variables == ("here",)


def test_what_static_analysis_claims_wrongly(sandbox):
    sets = [Sampling(values={"user_name": "Kim"}), Sampling(values={"user_name": "Kim"})]
    sample = sample_template("Hello {{ user_name }}", samplings=sets, sandbox=sandbox)
    assert sample.agreement is Agreement.CLAIMED
    assert sample.first_difference_chars is None
    assert sample.static_end_chars == 6


def test_values_that_begin_alike_still_agree(sandbox):
    sets = [Sampling(values={"user_id": f"user-{n}"}) for n in range(2)]
    sample = sample_template("Hello {{ user_id }}", samplings=sets, sandbox=sandbox)
    assert (sample.agreement, sample.first_difference_chars) == (Agreement.AGREES, 11)


def test_tokens_are_compared_where_there_is_a_tokenizer(sandbox):
    sample = sample_template(
        "one two {{ user_name }} three", sandbox=sandbox, encode=lambda t: [*map(hash, t.split())]
    )
    assert sample.first_difference_tokens == 2
    assert sample.static_end_tokens == 2


def test_declared_scopes_go_before_names(sandbox):
    declared = {
        "user_name": Parameter(name="user_name", scope=Volatility.DEPLOYMENT),
        "here": Parameter(name="here", scope=Volatility.REQUEST),
        "brand": Parameter(name="brand", scope=Volatility.VERSION, value="Kiwi"),
    }
    source = "{{ brand }}: {{ user_name }} {{ here }}"
    sample = sample_template(source, parameters=declared, sandbox=sandbox)
    assert sample.agreement is Agreement.AGREES
    assert sample.variables == ("here",)


def test_clock_and_random_source_stand_still(sandbox):
    source = "{{ strftime_now('%S') }}{{ range(99999) | random }}{{ lipsum(n=1) }}"
    still = [Sampling(values={}, now=CLOCKS[1], seed=4)] * 2
    assert sample_template(source, samplings=still, sandbox=sandbox).first_difference_chars is None
    moved = [still[0], Sampling(values={}, now=CLOCKS[1] + timedelta(seconds=1), seed=4)]
    sample = sample_template(source, samplings=moved, sandbox=sandbox)
    assert (sample.first_difference_chars, sample.variables) == (1, ("strftime_now",))


def test_one_branch_is_not_enough(sandbox):
    source = "{% if mode == 'chatty' %}Hi {{ user_name }}{% else %}Hello{% endif %}"
    sample = sample_template(source, sandbox=sandbox)
    assert (sample.agreement, sample.first_difference_chars) == (Agreement.AGREES, 3)


def test_generated_values_differ_from_their_first_character():
    first, second, third = generate_samplings(
        "{{ user.name }}{{ now }}{{ 1 if age > 3 }}{{ tone }}"
    )
    assert len({s.values["user"]["name"][0] for s in (first, second, third)}) == 3
    assert first.values["tone"] == second.values["tone"]
    assert isinstance(first.values["age"], int)
    for code in "YmdHMSBAjI":
        texts = {datetime.strftime(s.now, f"%{code}")[0] for s in (first, second)}
        assert len(texts) == 2, code


def test_hostile_and_broken_templates():
    with Sandbox(Limits(seconds=0.5)) as own:
        slow = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        sample = sample_template(slow, sandbox=own)
        assert sample.agreement is Agreement.FAILED
        assert sample.failure is not None
        assert sample.failure.kind is FailureKind.TIME
        with pytest.raises(UnreadableError):
            sample_template("{% if %}", sandbox=own)
        with pytest.raises(ValueError, match="at least two"):
            sample_template("x", samplings=[Sampling(values={})], sandbox=own)


def test_what_nobody_knows_is_varied(sandbox):
    sample = sample_template("Nothing {{ here }} of {{ tone }} changes.", sandbox=sandbox)
    assert (sample.agreement, sample.first_difference_chars) == (Agreement.MISSED, 8)
    assert (sample.variables, sample.held) == (("here",), ("tone",))


@pytest.mark.parametrize(
    "condition", ["here", "not here", "here and tone", "box.here", "box['here']", "here == 'x'"]
)
def test_both_branches_of_an_unknown_condition_are_taken(sandbox, condition):
    source = f"Start. {{% if {condition} %}}One{{% else %}}Two{{% endif %}} end"
    sample = sample_template(source, sandbox=sandbox)
    assert {e[:3] for e in sample.excerpts} == {"One", "Two"}
    assert sample.agreement is Agreement.MISSED


def test_what_is_declared_is_held_constant(sandbox):
    declared = {"here": Parameter(name="here", scope=Volatility.DEPLOYMENT)}
    sample = sample_template("So {{ here }} and so on", parameters=declared, sandbox=sandbox)
    assert (sample.agreement, sample.held) == (Agreement.AGREES, ("here",))
