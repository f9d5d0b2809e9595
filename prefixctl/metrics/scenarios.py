"""The vocabulary of generated unit tests: a situation, and what must follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from prefixctl.metrics.model import AlertRule, RuleFile
from prefixctl.metrics.parameters import Parameters
from prefixctl.metrics.selector import Source
from prefixctl.metrics.traffic import Phase, Step, counter_values, hits_of

Labels = dict[str, str]

TOLERANCE = 0.001
"""Of recorded values in the unit tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSeries:
    """A stored series, one sample a minute, in promtool's expanding notation."""

    series: str
    values: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """One alert that must fire, and its value as the description prints it."""

    labels: Labels
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTest:
    """What an alert rule must do at a minute; nothing firing asserts silence."""

    minute: int
    rule: AlertRule
    firing: tuple[FiringAlert, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample that a query must return."""

    labels: str
    value: float

    @classmethod
    def of(cls, name: str, labels: Labels, value: float) -> Sample:
        """A sample of a named series."""
        return cls(labels=name + label_text(labels), value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExprTest:
    """What a query must return at a minute; no samples assert an empty result."""

    minute: int
    expr: str
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A situation and what must follow from it."""

    name: str
    input_series: tuple[InputSeries, ...]
    alerts: tuple[AlertTest, ...] = ()
    exprs: tuple[ExprTest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Builds input series and expectations for one rule file.

    Attributes:
        source: Where the rules look.
        parameters: What they were made with.
        rules: The rules under test.
        base: Labels of all engines; matchers of the source win over them.
    """

    source: Source
    parameters: Parameters
    rules: RuleFile
    base: Labels = field(default_factory=lambda: {"job": "vllm", "model_name": "support"})

    def engine_labels(self, engine: int) -> Labels:
        """The labels of one engine."""
        own = {"engine": str(engine), "instance": f"gpu-{engine}:8000"}
        return {**own, **self.base, **self.source.example_labels()}

    def model_labels(self) -> Labels:
        """The labels that are left when the engines are aggregated away."""
        labels = self.engine_labels(0)
        replicas = self.parameters.replica_labels
        return {name: text for name, text in labels.items() if name not in replicas}

    def absent_labels(self) -> Labels:
        """The labels that ``absent()`` gives: of equality matchers that stand alone."""
        labels = [m.label for m in self.source.matchers]
        return {
            m.label: m.value
            for m in self.source.matchers
            if m.op == "=" and m.value and labels.count(m.label) == 1
        }

    def series(self, series: str, engine: int, values: str, **extra: str) -> InputSeries:
        """A series of one engine, with the labels that it has in the catalogue."""
        labels = {**self.engine_labels(engine), **extra}
        if "model_name" not in self.source.catalogue.find(series).labels:
            labels.pop("model_name")
        return InputSeries(series=self.source.name(series) + label_text(labels), values=values)

    def created(self, counter: str, engine: int, values: str) -> InputSeries:
        """The timestamp series beside a counter."""
        name = self.source.name(counter).removesuffix("_total") + "_created"
        return InputSeries(series=name + label_text(self.engine_labels(engine)), values=values)

    def counter(
        self, series: str, engine: int, phases: Sequence[Phase], step: Step, **extra: str
    ) -> InputSeries:
        """A counter of one engine."""
        return self.series(series, engine, counter_values(phases, step), **extra)

    def cache(self, engine: int, *phases: Phase) -> tuple[InputSeries, ...]:
        """Queries and hits of one engine."""
        return (
            self.counter("vllm:prefix_cache_queries_total", engine, phases, lambda p: p.tokens),
            self.counter("vllm:prefix_cache_hits_total", engine, phases, hits_of),
        )

    def fires(
        self, alert: str, minute: int, *, value: str = "", labels: Labels | None = None
    ) -> AlertTest:
        """The alert fires once, with the labels of the model unless others are given."""
        expected = FiringAlert(
            labels=self.model_labels() if labels is None else labels, value=value
        )
        return AlertTest(minute=minute, rule=self.rules.alert(alert), firing=(expected,))

    def silent(self, alert: str, minute: int) -> AlertTest:
        """The alert does not fire."""
        return AlertTest(minute=minute, rule=self.rules.alert(alert))

    def recorded(self, name: str, minute: int, value: float, **extra: str) -> ExprTest:
        """A recorded series has this value, and one series only."""
        labels = {**self.model_labels(), **extra}
        chosen = f"{name}{label_text(extra)}" if extra else name
        # A tolerance, not a rounded value: two ways to round differ where a value ends on a 5.
        sample = Sample(labels=label_text(labels), value=1)
        near = f"abs({chosen} - {value:.6g}) < bool {TOLERANCE:g}"
        return ExprTest(minute=minute, expr=near, samples=(sample,))


def label_text(labels: Labels) -> str:
    """Labels between braces, in order of their names."""
    return "{" + ",".join(f'{name}="{labels[name]}"' for name in sorted(labels)) + "}"


def quiet(*minutes: int) -> tuple[ExprTest, ...]:
    """Not a single alert fires."""
    return tuple(ExprTest(minute=m, expr='ALERTS{alertstate="firing"}') for m in minutes)


def one_alert(minute: int) -> ExprTest:
    """Exactly one alert fires, whichever."""
    one = Sample(labels="{}", value=1)
    return ExprTest(minute=minute, expr='count(ALERTS{alertstate="firing"})', samples=(one,))


def firing(alert: str, minute: int) -> ExprTest:
    """This alert fires once; what its description says is left open."""
    chosen = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return ExprTest(minute=minute, expr=chosen, samples=(Sample(labels="{}", value=1),))
