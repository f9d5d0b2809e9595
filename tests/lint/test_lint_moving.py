"""PFX108: a claim that a chat template moves text is shown by rendering, or dropped."""

from __future__ import annotations

import pytest
from linting import lint_text, static

from prefixctl.core.findings import Confidence, Verdict

TURN = "<{{ message['role'] }}>{{ message['content'] }}"
MOVES = (
    "{%- for message in messages %}{%- if loop.last %}{{ messages[0]['content'] }}\n" + TURN
    + "{%- else %}" + TURN + "{%- endif %}{%- endfor %}"
)  # fmt: skip


def test_what_moves_is_shown_with_its_evidence(tmp_path):
    report = lint_text(tmp_path, MOVES)
    finding = next(f for f in report.findings if f.rule == "PFX108")
    assert report.verdict is Verdict.BREAK
    assert finding.confidence is Confidence.HIGH
    assert "rendered, the next turn keeps " in finding.message


@pytest.mark.parametrize(
    "kept",
    [
        # Both branches print the same, so the condition on the end of the conversation is idle.
        "{%- for message in messages %}{%- if loop.last %}"
        "{%- if loop.first %}{{ messages[0]['content'] }}{% endif %}{%- endif %}"
        + TURN + "{%- endfor %}{%- if add_generation_prompt %}<assistant>{% endif %}",
    ],
)  # fmt: skip
def test_what_renders_refute_is_dropped(tmp_path, kept):
    report = lint_text(tmp_path, kept)
    assert "PFX108" not in [f.rule for f in report.findings]
    assert report.verdict is not Verdict.BREAK


@pytest.mark.parametrize(
    "broken",
    [
        "{{ raise_exception('never') if messages }}" + MOVES,
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}" + MOVES,
    ],
)
def test_what_cannot_be_rendered_stays_a_claim(tmp_path, broken):
    report = lint_text(tmp_path, broken)
    finding = next(f for f in report.findings if f.rule == "PFX108")
    assert finding.confidence is Confidence.MEDIUM
    assert "rendered" not in finding.message


def test_a_prompt_is_never_rendered(tmp_path, monkeypatch):
    from prefixctl.lint.chat import confirm

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("rendered")

    monkeypatch.setattr(confirm, "measure_template", refuse)
    lint_text(tmp_path, "{{ now }}\n" + static(60))
    lint_text(tmp_path, "{% for message in messages %}" + TURN + "{% endfor %}")
