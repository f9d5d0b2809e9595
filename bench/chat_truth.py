"""Chat templates against measured truth: agreement per column, every disagreement listed.

    python bench/chat_truth.py [CORPUS]

CORPUS holds chat_render_truth.tsv (path, clock_sys, ...), ../shared/corpus if omitted. Non-empty
cells are compared by their first word. Exits 1 below 97 %.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prefixctl.errors import InputError
from prefixctl.lint.chat.advice import rows
from prefixctl.lint.chat.behaviour import ChatBehaviour
from prefixctl.lint.chat.measure import measure_template
from prefixctl.lint.chat.source import read_templates
from prefixctl.prompts.sandbox import Sandbox

WANTED = 0.97
COLUMNS = (
    "clock_sys", "clock_nosys", "clock_tools", "sys_shared", "multi_turn", "reasoning",
    "inline_think", "tools", "tools_multi_turn", "tools_key_order", "tools_list_order",
    "emits_bos", "sys_trim", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the truth and what is measured."""

    path: str
    column: str
    wanted: str
    measured: str
    explanation: str

    @property
    def agrees(self) -> bool:
        """Whether the first words are the same."""
        return self.wanted.split()[0] == self.measured.split(maxsplit=1)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=Path("../shared/corpus"))
    truth = parser.parse_args().corpus / "chat_render_truth.tsv"
    if not truth.is_file():
        print(f"no truth at {truth}", file=sys.stderr)
        return 3
    with truth.open(encoding="utf-8", newline="") as file:
        templates = list(csv.DictReader(file, delimiter="\t"))
    started = time.perf_counter()
    with Sandbox() as sandbox:
        cells = [c for row in templates for c in compared(truth.parent, row, sandbox)]
    seconds = time.perf_counter() - started
    for cell in cells:
        if not cell.agrees:
            print(f"{cell.path}  {cell.column}: {cell.wanted} but measured {cell.measured}"
                  f"  ({cell.explanation})")  # fmt: skip
    figures = agreement(cells, len(templates), seconds)
    print(json.dumps(figures, indent=2))
    return 0 if cells and figures["agreement"] >= WANTED else 1


def compared(corpus: Path, row: dict[str, str], sandbox: Sandbox) -> Iterator[Cell]:
    """The non-empty cells of one template, beside what is measured."""
    try:
        source = read_templates(corpus / row["path"])[0].source
        behaviour = measure_template(source, sandbox=sandbox)
    except InputError as exc:
        print(f"{row['path']}  {exc.message}")
        behaviour = ChatBehaviour()
    advice = {r.name: r.advice for r in rows(behaviour)}
    said = behaviour.failure.message if behaviour.failure else ""
    for column in COLUMNS:
        if row[column]:
            yield Cell(
                path=row["path"],
                column=column,
                wanted=row[column],
                measured=str(getattr(behaviour, column) or "-"),
                explanation=said or advice[column] or "no more is known",
            )


def agreement(cells: list[Cell], templates: int, seconds: float) -> dict[str, float]:
    """Agreement per column and in all, printed and summed up."""
    total = Counter(c.column for c in cells)
    agreeing = Counter(c.column for c in cells if c.agrees)
    for column in COLUMNS:
        if total[column]:
            share = agreeing[column] / total[column]
            print(f"{column:18} {agreeing[column]:4} of {total[column]:4}  {share:7.1%}")
    return {
        "templates": templates,
        "cells": len(cells),
        "agree": agreeing.total(),
        "agreement": round(agreeing.total() / max(len(cells), 1), 4),
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
