"""A file's report as JSON that says all of it, and back."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from prefixctl.core.findings import Confidence, Finding, Location, Severity, Suppressed, Verdict
from prefixctl.core.prompt import Volatility
from prefixctl.lint.report import FileReport, PrintedValue


def dumps(report: FileReport | None) -> str:
    """The JSON text of a report, or of the fact that there is none."""
    if report is None:
        return "null"
    kept = _fields(report) | {"lines": list(report.lines.items())}
    return json.dumps(kept, separators=(",", ":"), default=_fields)


def loads(text: str) -> FileReport | None:
    """The report of `dumps`.

    Raises:
        ValueError, TypeError, KeyError: If the text is another one.
    """
    kept = json.loads(text)
    if kept is None:
        return None
    kept["verdict"] = Verdict(kept["verdict"])
    kept["findings"] = tuple(map(_finding, kept["findings"]))
    kept["baselined"] = tuple(map(_finding, kept["baselined"]))
    kept["values"] = tuple(map(_value, kept["values"]))
    kept["lines"] = {Location(**place): line for place, line in kept["lines"]}
    kept["suppressed"] = tuple(
        Suppressed(finding=_finding(s["finding"]), reason=s["reason"]) for s in kept["suppressed"]
    )
    return FileReport(**kept)


def _fields(made: Any) -> dict[str, Any]:
    """The fields of a dataclass, as they are: no deep copy, which would cost more than lint."""
    return {f.name: getattr(made, f.name) for f in fields(made)}


def _finding(kept: dict[str, Any]) -> Finding:
    kept["severity"] = Severity(kept["severity"])
    return Finding(**_shared(kept))


def _value(kept: dict[str, Any]) -> PrintedValue:
    return PrintedValue(**_shared(kept))


def _shared(kept: dict[str, Any]) -> dict[str, Any]:
    """The fields that findings and values have in common."""
    kept["confidence"] = Confidence(kept["confidence"])
    kept["location"] = Location(**kept["location"])
    if kept["volatility"] is not None:
        kept["volatility"] = Volatility(kept["volatility"])
    return kept
