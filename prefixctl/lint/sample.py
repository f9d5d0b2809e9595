"""Sampling: render with several sets of values, and compare with what static analysis says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from prefixctl.core.blocks import common_prefix_tokens
from prefixctl.core.prompt import Parameter
from prefixctl.lint.evaluate.names import cause_of, is_unknown
from prefixctl.lint.evaluate.statements import read_template
from prefixctl.lint.evaluate.syntax import parse
from prefixctl.lint.evaluate.value import Value
from prefixctl.lint.sample_align import Alignment, align, shared_chars
from prefixctl.prompts.sandbox import Dialect, Failure, Job, Outcome, Render, Sandbox
from prefixctl.prompts.sandbox_values import Stillness, generate_values

Encode = Callable[[str], Sequence[int]]

CLOCKS = (
    datetime(2025, 12, 31, 10, 20, 11),
    datetime(1998, 3, 5, 20, 47, 58),
    datetime(3006, 4, 8, 2, 35, 27),
)
"""Clocks of generated sets: no field of a date or a time of the first begins as in the others."""
CLOCK_NAME = "strftime_now"
EXCERPT_CHARS = 40


class Agreement(StrEnum):
    """How the renders agree with static analysis."""

    AGREES = "agrees"
    MISSED = "missed"
    CLAIMED = "claimed"
    UNALIGNED = "unaligned"
    FAILED = "failed"


_TELLING = (
    Agreement.MISSED,
    Agreement.AGREES,
    Agreement.CLAIMED,
    Agreement.UNALIGNED,
    Agreement.FAILED,
)
"""What one group of values shows goes before what others do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """One set of values, with a clock and a random source that stand still.

    Attributes:
        values: By variable name; see `prefixctl.prompts.sandbox.Render`.
        now: What the clock shows.
        seed: Of the random source.
    """

    values: Mapping[str, Any]
    now: datetime = CLOCKS[0]
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What sampling says of a template.

    Attributes:
        agreement: AGREES: the renders part where static analysis says, or neither sees a change.
            MISSED: they part earlier. CLAIMED: later, or not at all. UNALIGNED: static analysis
            expects text that is not there. FAILED: they cannot be rendered.
        first_difference_chars: Characters that all renders share; None if they are equal.
        static_end_chars: Where static analysis expects them to part; None if nowhere.
        first_difference_tokens: Tokens that all renders share; None without a tokenizer, or if
            they are equal.
        static_end_tokens: Tokens in the text up to `static_end_chars`; None without a tokenizer.
        excerpts: What each render has at the first difference.
        variables: The variables that part them there, when each is changed alone.
        failure: Why they cannot be rendered.
        held: Variables that have one value in all renders, so that nothing shows of them.
    """

    agreement: Agreement
    first_difference_chars: int | None = None
    static_end_chars: int | None = None
    first_difference_tokens: int | None = None
    static_end_tokens: int | None = None
    excerpts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    failure: Failure | None = None
    held: tuple[str, ...] = ()


def sample_template(
    source: str,
    *,
    samplings: Sequence[Sampling] | None = None,
    parameters: Mapping[str, Parameter] | None = None,
    files: Mapping[str, str] | None = None,
    encode: Encode | None = None,
    sandbox: Sandbox | None = None,
) -> Sample:
    """Render a prompt template with several sets of values, and compare with static analysis.

    Args:
        source: A Jinja2 template.
        samplings: At least two sets of values. If omitted, three groups of sets are made: the
            values that stay the same within a group differ between the groups, so that more than
            one branch is seen; the group that says most is reported.
        parameters: Declared parameters.
        files: All that it may include, by name.
        encode: Token ids of a text; characters alone are compared if omitted.
        sandbox: Renders it; one that ends with the call if omitted.

    Raises:
        UnreadableError: If the template cannot be parsed.
        ValueError: If fewer than two sets are given.
        PrefixctlError: If the sandbox cannot be started.
    """
    if sandbox is None:
        with Sandbox() as own:
            return sample_template(
                source, samplings=samplings, parameters=parameters, files=files, encode=encode,
                sandbox=own,
            )  # fmt: skip
    declared, known = parameters or {}, files or {}
    value = read_template(parse(source), parameters=declared, loader=known.get)
    groups = (
        [generate_samplings(source, parameters=declared, files=known, stillness=s)
         for s in Stillness]
        if samplings is None else [tuple(samplings)]
    )  # fmt: skip
    if any(len(g) < 2 for g in groups):  # noqa: PLR2004 - two are needed to differ
        raise ValueError("at least two sets of values are needed")
    rendered = _rendered(source, groups, known, sandbox)
    samples = [_sample(g, o, value, encode) for g, o in zip(groups, rendered, strict=True)]
    telling = min(samples, key=lambda s: _TELLING.index(s.agreement))
    fixed = {name for name, p in declared.items() if p.value is not None}
    return replace(telling, held=tuple(n for n in _held(groups[0]) if n not in fixed))


def generate_samplings(
    source: str,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    files: Mapping[str, str] | None = None,
    stillness: Stillness = Stillness.PLAIN,
    count: int = len(CLOCKS),
) -> tuple[Sampling, ...]:
    """Sets of values that differ in everything that changes between requests.

    What that is, the declared scopes say, and names for what is not declared. A value of which
    neither says anything differs as well; one that is declared or named as the application's own
    stays the same.

    Raises:
        UnreadableError: If the template cannot be parsed.
    """
    trees = [parse(text).tree for text in (source, *(files or {}).values())]
    declared = parameters or {}

    def changes(path: str) -> bool:
        parameter = declared.get(path.split(".", 1)[0])
        if parameter is None and unknown(path):
            return True
        volatility = parameter.scope if parameter else cause_of(path).volatility
        return volatility is not None and volatility.is_dynamic

    def unknown(path: str) -> bool:
        return path.split(".", 1)[0] not in declared and is_unknown(path)

    fixed = {n: p.value for n, p in declared.items() if p.value is not None}
    made = []
    for index in range(count):
        now = CLOCKS[index % len(CLOCKS)]
        values = generate_values(trees, changes=changes, stillness=stillness, index=index, now=now,
                                 unknown=unknown)  # fmt: skip
        made.append(Sampling(values={**values, **fixed}, now=now, seed=index))
    return tuple(made)


def _sample(
    sets: Sequence[Sampling], outcomes: Sequence[Outcome], value: Value, encode: Encode | None
) -> Sample:
    plain, alone = outcomes[: len(sets)], outcomes[len(sets) :]
    failure = next((o.failure for o in plain if o.failure), None)
    if failure is not None:
        return Sample(agreement=Agreement.FAILED, failure=failure)
    texts = [o.text or "" for o in plain]
    first = texts[0]
    shared = min(shared_chars(first, t) for t in texts[1:])
    aligned = align(value, first)
    found = None if all(t == first for t in texts) else shared
    nearest = min(aligned.ends, key=lambda e: (abs(e - shared), e), default=None)
    tokens = [list(encode(t)) for t in texts] if encode else []
    differing = tokens if found is not None else []
    return Sample(
        agreement=_agreement(found, aligned, _slack(sets)),
        first_difference_chars=found,
        static_end_chars=nearest,
        first_difference_tokens=min(
            (common_prefix_tokens(differing[0], t) for t in differing[1:]), default=None
        ),
        static_end_tokens=len(encode(first[:nearest])) if encode and nearest is not None else None,
        excerpts=() if found is None else tuple(t[found : found + EXCERPT_CHARS] for t in texts),
        variables=() if found is None else _culprits(first, found, _one_by_one(sets), alone),
    )


def _agreement(found: int | None, aligned: Alignment, slack: int) -> Agreement:
    ends = aligned.ends
    if not ends:
        if not aligned.complete:
            return Agreement.UNALIGNED
        return Agreement.AGREES if found is None else Agreement.MISSED
    if found is None:
        return Agreement.CLAIMED
    if found < min(ends):
        return Agreement.MISSED
    return Agreement.AGREES if any(0 <= found - e <= slack for e in ends) else Agreement.CLAIMED


def _slack(sets: Sequence[Sampling]) -> int:
    """How many characters two values that differ have in common at most, from the start."""
    first = sets[0].values
    pairs = [(first[n], s.values[n]) for s in sets[1:] for n in first if n in s.values]
    return max((shared_chars(a, b) for a, b in pairs if _are_different_texts(a, b)), default=0)


def _are_different_texts(first: Any, second: Any) -> bool:
    return isinstance(first, str) and isinstance(second, str) and first != second


def _culprits(
    first: str, found: int, names: Iterable[str], alone: Iterable[Outcome]
) -> tuple[str, ...]:
    """The variables that part the renders where they part, when each is changed alone."""
    return tuple(
        name
        for name, outcome in zip(names, alone, strict=True)
        if outcome.text is not None
        and outcome.text != first
        and shared_chars(first, outcome.text) == found
    )


def _one_by_one(sets: Sequence[Sampling]) -> dict[str, Sampling]:
    """The first set with one variable of another, for every variable and clock that differs."""
    first = sets[0]
    made: dict[str, Sampling] = {}
    for other in sets[1:]:
        for name, value in other.values.items():
            if value != first.values.get(name):
                made.setdefault(name, replace(first, values={**first.values, name: value}))
        if other.now != first.now:
            made.setdefault(CLOCK_NAME, replace(first, now=other.now))
    return made


def _held(sets: Sequence[Sampling]) -> list[str]:
    first, *others = sets
    return [n for n, v in first.values.items() if all(s.values.get(n) == v for s in others)]


def _rendered(
    source: str,
    groups: Sequence[Sequence[Sampling]],
    files: Mapping[str, str],
    sandbox: Sandbox,
) -> list[tuple[Outcome, ...]]:
    """For each group its sets, then the first set with one variable changed; all in one job."""
    wanted = [[*g, *_one_by_one(g).values()] for g in groups]
    renders = [Render(values=s.values, now=s.now, seed=s.seed) for w in wanted for s in w]
    job = Job(source=source, renders=renders, dialect=Dialect.PROMPT, files=files)
    outcomes = iter(sandbox.render(job))
    return [tuple(islice(outcomes, len(w))) for w in wanted]
