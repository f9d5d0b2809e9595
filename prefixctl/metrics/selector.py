"""Which engines the rules look at: the exporter's name prefix and the user's label matchers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from prefixctl.errors import InputError
from prefixctl.metrics.promql import call, duration, window
from prefixctl.sources.catalogue import Catalogue, SeriesType, load_catalogue

CATALOGUE_PREFIX = "vllm:"

_MATCHER = re.compile(
    r'\s*(?P<label>[a-zA-Z_]\w*)\s*(?P<op>=~|!~|!=|=)\s*"(?P<value>(?:[^"\\\n]|\\.)*)"\s*'
)
_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One label matcher. The value is kept as written, escapes included."""

    label: str
    op: str
    value: str

    def __str__(self) -> str:
        return f'{self.label}{self.op}"{self.value}"'

    @property
    def example(self) -> str:
        """A value that the matcher accepts; an empty one stands for no such label.

        Raises:
            InputError: If none can be guessed from the regular expression.
        """
        if self.op == "=":
            return self.value
        absent_fits = self.value != "" if self.op == "!=" else not re.fullmatch(self.value, "")
        if self.op in {"!=", "!~"} and absent_fits:
            return ""
        guess = re.sub(r"\.[*+]", "x", self.value.split("|", maxsplit=1)[0].strip("()"))
        if self.op == "=~" and re.fullmatch(self.value, guess):
            return guess
        raise InputError(
            f"no example value for the matcher {self}, so no unit tests",
            hint="write the first alternative of the pattern as a plain word",
        )


def parse_matchers(text: str) -> tuple[Matcher, ...]:
    """Read label matchers as they stand between braces: ``job="vllm",env!="dev"``.

    Raises:
        InputError: If the text is anything else.
    """
    found: list[Matcher] = []
    rest = text.strip().removeprefix("{").removesuffix("}").strip()
    while rest:
        match = _MATCHER.match(rest)
        if match is None or rest[match.end() : match.end() + 1] not in {"", ","}:
            raise InputError(
                f"no label matcher: {rest}", hint='write it as in PromQL: job="vllm",env!="dev"'
            )
        matcher = Matcher(label=match["label"], op=match["op"], value=match["value"])
        _require_pattern(matcher)
        found.append(matcher)
        rest = rest[match.end() :].removeprefix(",").strip()
    return tuple(found)


def _require_pattern(matcher: Matcher) -> None:
    if matcher.op in {"=~", "!~"}:
        try:
            re.compile(matcher.value)
        except re.error as exc:
            raise InputError(f"broken pattern in the matcher {matcher}: {exc}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The engine's series as one Prometheus stores them.

    Attributes:
        catalogue: The names that exist; a rule cannot be built on any other.
        metric_prefix: What the stored names begin with in the place of ``vllm:``; some platforms
            rename on scrape, KServe to ``kserve_vllm:``.
        matchers: Added to every selector.
    """

    catalogue: Catalogue
    metric_prefix: str = CATALOGUE_PREFIX
    matchers: tuple[Matcher, ...] = ()

    def name(self, series: str) -> str:
        """The stored name of a catalogued series."""
        self.catalogue.find(series)
        return self.metric_prefix + series.removeprefix(CATALOGUE_PREFIX)

    def vector(self, series: str, *extra: Matcher, offset: timedelta | None = None) -> str:
        """The instant vector of a series.

        A matcher on an engine label that this series lacks would match nothing and is left out:
        ``cache_config_info`` has no ``model_name``.
        """
        own = set(self.catalogue.find(series).labels)
        foreign = {label for one in self.catalogue.series for label in one.labels} - own
        kept = (m for m in self.matchers if m.label not in foreign)
        matchers = ",".join(str(m) for m in (*kept, *extra))
        braces = f"{{{matchers}}}" if matchers else ""
        past = "" if offset is None else f" offset {duration(offset)}"
        return f"{self.name(series)}{braces}{past}"

    def rate(self, series: str, span: timedelta, *, offset: timedelta | None = None) -> str:
        """The rate per second of a counter, or of a part of a histogram; resets are no spikes.

        Raises:
            ValueError: If the series is a gauge, which has no rate.
        """
        if self.catalogue.find(series).type is SeriesType.GAUGE:
            raise ValueError(f"rate of the gauge {series}")
        return call("rate", window(self.vector(series), span, offset=offset))

    def example_labels(self) -> Mapping[str, str]:
        """Labels of a series that all matchers accept, for unit tests."""
        return {m.label: m.example for m in self.matchers if m.example}


def make_source(*, metric_prefix: str = CATALOGUE_PREFIX, selector: str = "") -> Source:
    """The source for names and matchers that people wrote.

    Raises:
        InputError: If the prefix cannot begin a metric name, or the matchers cannot be read.
    """
    if not _PREFIX.fullmatch(metric_prefix):
        raise InputError(
            f"'{metric_prefix}' cannot begin a metric name", hint="for example kserve_vllm:"
        )
    return Source(
        catalogue=load_catalogue(),
        metric_prefix=metric_prefix,
        matchers=parse_matchers(selector),
    )
