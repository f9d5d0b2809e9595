"""JUnit XML: one test case for each file."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from prefixctl.core.findings import Finding, Severity, Verdict
from prefixctl.lint.report import FileReport, LintReport

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: LintReport, threshold: Severity | None) -> str:
    """The report as one test suite.

    Args:
        report: The report.
        threshold: Findings from here on are failures, lesser ones output of the test; all of them
            are output without one. A file that cannot be read is an error either way.
    """
    cases = [_case(file, threshold) for file in report.files]
    failed = [c for c in cases if c.find("failure") is not None]
    broken = [c for c in cases if c.find("error") is not None]
    counts = {
        "name": "prefixctl lint",
        "tests": str(len(cases)),
        "failures": str(len(failed)),
        "errors": str(len(broken)),
    }
    top = ET.Element("testsuites", counts)
    ET.SubElement(top, "testsuite", counts).extend(cases)
    ET.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, encoding="unicode")


def _case(file: FileReport, threshold: Severity | None) -> ET.Element:
    case = ET.Element("testcase", {"classname": "prefixctl.lint", "name": _legal(file.path)})
    remarks = []
    for finding in file.findings:
        if file.verdict is Verdict.ERROR and finding.rule == "PFX000":
            _add(case, "error", finding)
        elif threshold is not None and finding.severity >= threshold:
            _add(case, "failure", finding)
        else:
            remarks.append(_text(finding))
    if remarks:
        ET.SubElement(case, "system-out").text = _legal("\n".join(remarks))
    return case


def _add(case: ET.Element, tag: str, finding: Finding) -> None:
    made = ET.SubElement(case, tag, {"type": finding.rule, "message": _legal(finding.message)})
    made.text = _legal(_text(finding))


def _text(finding: Finding) -> str:
    place = finding.location
    head = f"{place.path}:{place.line}:{place.column}: {finding.severity.label} {finding.rule}"
    advice = f"\nadvice: {finding.advice}" if finding.advice else ""
    return f"{head} {finding.message}{advice}"


def _legal(text: str) -> str:
    """The text without what no XML document may hold."""
    return _NOT_XML.sub("\ufffd", text)
