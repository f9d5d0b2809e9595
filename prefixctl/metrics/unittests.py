"""Unit tests for promtool, made from the rules that they test.

Every alert has a situation in which it fires and ones in which it must not.
"""

from __future__ import annotations

from prefixctl.metrics.model import RuleFile
from prefixctl.metrics.parameters import Parameters
from prefixctl.metrics.scenarios import Bench, Scenario
from prefixctl.metrics.selector import Source
from prefixctl.metrics.situations import cold_start, engine, frozen, hit_rate
from prefixctl.metrics.traffic import figures

_SITUATIONS = (
    *hit_rate.SITUATIONS,
    *cold_start.SITUATIONS,
    *frozen.SITUATIONS,
    *engine.SITUATIONS,
)


def unit_tests(rules: RuleFile, source: Source, parameters: Parameters) -> tuple[Scenario, ...]:
    """The unit tests of a rule file that was made from this source and these parameters.

    Raises:
        InputError: If no example series can be made for the matchers of the source.
    """
    bench = Bench(source=source, parameters=parameters, rules=rules)
    suited = figures(parameters)
    return tuple(situation(bench, suited) for situation in _SITUATIONS)
