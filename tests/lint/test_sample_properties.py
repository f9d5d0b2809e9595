"""Random templates: sampled renders against the point where static analysis ends the prefix."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixctl.core.prompt import Parameter, Volatility
from prefixctl.lint.sample import Agreement, sample_template
from prefixctl.prompts.sandbox import Sandbox

PARAMETERS = {
    name: Parameter(name=name, scope=scope, value=value)
    for name, scope, value in [
        ("ask", Volatility.REQUEST, None),
        ("who", Volatility.USER, None),
        ("chat", Volatility.SESSION, None),
        ("owner", Volatility.TENANT, None),
        ("place", Volatility.DEPLOYMENT, None),
        ("release", Volatility.VERSION, "blue"),
    ]
}
"""Names that say nothing by themselves, so that the declared scope is all that counts."""

WORDS = st.sampled_from(
    ["Answer in short. ", "Be kind. ", "Check twice. ", "\n", "Do not guess. ", "End with a dot. ",
     "First the rules: ", "<guide>", "Help them. ", "If in doubt, ask. ", "Join lines. ",
     "Keep calm. ", "Look it up. ", "Mind the gap. ", "No lists. ", "Obey. ", "Quote them. "]
)  # fmt: skip
MOVING = st.sampled_from(["ask", "who", "chat", "owner", "now()", "uuid4()"])
STILL = st.sampled_from(["place", "release", "'plain '", "persona_text"])


def _calm(expressions):
    return st.one_of(
        st.builds("({} ~ {})".format, expressions, expressions),
        st.builds("{} | trim".format, expressions),
        st.builds("{} | upper".format, expressions),
        st.builds("{} | default('none')".format, expressions),
        st.builds("({} if place == 'north' else {})".format, expressions, expressions),
    )


EXPRESSIONS = st.recursive(st.one_of(MOVING, STILL, STILL), _calm, max_leaves=3)
CONDITIONS = st.sampled_from(
    ["place == 'north'", "release == 'blue'", "ask == 'help'", "owner in ['a', 'b']",
     "place is defined", "who", "not place"]
)  # fmt: skip


FORMS = st.sampled_from(
    [
        "{body}{other}",
        "{{% if {test} %}}{body}{{% else %}}{other}{{% endif %}}",
        "{{% if {test} %}}{body}{{% elif place == 'south' %}}{other}{{% endif %}}",
        "{{% for x{n} in ['a', 'b'] %}}{body}{{{{ x{n} }}}}{{% endfor %}}",
        "{{% for hit in search_results %}}{body}{{{{ hit.text }}}}{{% endfor %}}",
        "{{% set v{n} = {value} %}}{body}{{{{ v{n} }}}}",
        "{{% set v{n} %}}{body}{{% endset %}}Kept: {{{{ v{n} }}}}",
        "{{% macro m{n}(a) %}}[{body}{{{{ a }}}}]{{% endmacro %}}{{{{ m{n}({value}) }}}}",
        "{{% set n{n} = namespace(a='') %}}{{% set n{n}.a = {value} %}}{body}{{{{ n{n}.a }}}}",
        "{{% filter trim %}}{body}{{% endfilter %}}",
        "{{% with w{n} = {value} %}}{body}{{{{ w{n} }}}}{{% endwith %}}",
    ]
)


def _filled(form, body, other, test, value):
    """A statement; its names are numbered by its length, so that none inside it has the same."""
    return form.format(body=body, other=other, test=test, value=value, n=len(body))


def _statements(bodies):
    return st.builds(_filled, FORMS, bodies, bodies, CONDITIONS, EXPRESSIONS)


BODIES = st.one_of(WORDS, WORDS, st.builds("{{{{ {} }}}}".format, EXPRESSIONS))
TEMPLATES = st.builds("{}{}".format, WORDS, st.recursive(BODIES, _statements, max_leaves=8))


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def test_renders_part_where_static_analysis_says(sandbox):
    seen: Counter[Agreement] = Counter()

    @settings(max_examples=120, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(TEMPLATES)
    def check(source):
        sample = sample_template(source, parameters=PARAMETERS, sandbox=sandbox)
        assert sample.agreement not in {Agreement.MISSED, Agreement.FAILED}, source
        if sample.static_end_chars is not None:
            seen[sample.agreement] += 1

    check()
    assert seen.total() >= 60, "too few templates with a value that changes"
    assert seen[Agreement.AGREES] >= 0.9 * seen.total(), seen
