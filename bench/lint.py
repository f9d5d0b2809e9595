"""Lint on 1,000 bad and 1,000 good templates, and its speed and memory.

    python bench/lint.py [--count N] [--show N] [--skip-memory] [--only accuracy|speed|memory]

- accuracy: templates with one defect of 11 kinds each (`bench/lint_templates.py`), and harmless
  twins. Found is a finding on the defect's line with advice; a false alarm is any finding at all.
  The one peer that scans templates (`pcd`, of prompt-cache-doctor) is run on the same files where
  it can be imported.
- speed: 1,000 templates against parsing them with Jinja2 and tokenising them, one process, in
  interleaved rounds; the same with a warm cache.
- memory: the peak of a process that lints 10,000 files.

Prints its figures last; exits 1 below a bar.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateSyntaxError
from jinja2.ext import do, loopcontrols
from lint_templates import SHAPES, VALUE_KINDS, Case, Maker, bad, good
from tokenizers import Tokenizer

from prefixctl.api.lint import lint_paths
from prefixctl.config import Config
from prefixctl.demo.tokenizer import make_tokenizer
from prefixctl.lint.report import FileReport

FOUND_BAR = 0.98
SPEED_BAR = 2.0
CACHE_BAR = 0.3
MEMORY_BAR_MB = 500
ROUNDS = 5
MEMORY_FILES = 10_000
CHILD = "--memory-child"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="disagreements to print")
    parser.add_argument("--only", choices=["accuracy", "speed", "memory"])
    parser.add_argument(CHILD, dest="child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return memory_child(options.child)
    wanted = {options.only} if options.only else {"accuracy", "speed", "memory"}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "accuracy" in wanted:
            figures |= accuracy(Path(folder) / "a", options.count, options.seed, options.show)
        if "speed" in wanted:
            figures |= speed(Path(folder) / "s")
        if "memory" in wanted:
            figures |= memory(Path(folder) / "m")
    missed = below(figures)
    print(json.dumps(figures | {"below_bar": missed}, indent=2))
    return 1 if missed else 0


def below(figures: dict[str, Any]) -> list[str]:
    """The figures that are below their bar."""
    bars = {
        "found": lambda v: v >= FOUND_BAR,
        "false_alarms": lambda v: v == 0,
        "speed_ratio": lambda v: v <= SPEED_BAR,
        "cache_ratio": lambda v: v <= CACHE_BAR,
        "memory_mb": lambda v: v < MEMORY_BAR_MB,
    }
    return [name for name, holds in bars.items() if name in figures and not holds(figures[name])]


def accuracy(root: Path, count: int, seed: int, show: int) -> dict[str, Any]:
    wrong = bad(count, seed)
    right = good(count, seed + 1)
    reports = linted(root, [*wrong, *right])
    found: Counter[str] = Counter()
    total: Counter[str] = Counter()
    unseen = []
    for case, report in zip(wrong, reports, strict=False):
        total[case.kind] += 1
        hits = [f for f in report.findings if f.location.line == case.line and f.advice]
        found[case.kind] += bool(hits)
        if not hits:
            unseen.append((case, report))
    alarms = [(c, r) for c, r in zip(right, reports[count:], strict=True) if r.findings]
    for word, listed in (("missed", unseen), ("false alarm", alarms)):
        for case, report in listed[:show]:
            describe(word, case, report)
    peer = peer_figures(root, wrong, right)
    return {
        "templates": {"bad": len(wrong), "good": len(right)},
        "found": round(found.total() / len(wrong), 4),
        "false_alarms": len(alarms),
        "found_by_kind": {k: f"{found[k]}/{total[k]}" for k in total},
        "peer": peer,
    }


def path_of(root: Path, index: int, case: Case) -> Path:
    return root / f"{index:05}" / next(iter(case.files))


def linted(root: Path, cases: list[Case]) -> list[FileReport]:
    """The report of each case's file, all of them linted in one run."""
    paths = []
    for index, case in enumerate(cases):
        for name, data in case.files.items():
            path = root / f"{index:05}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        paths.append(path_of(root, index, case))
    by_folder = {Path(r.path).parent.name: r for r in lint_paths(Config().at(root), paths).files}
    return [by_folder[p.parent.name] for p in paths]


def describe(word: str, case: Case, report: FileReport) -> None:
    text = next(iter(case.files.values())).decode(errors="replace")
    lines = text.splitlines()
    at = case.line or (report.findings[0].location.line if report.findings else 1)
    shown = lines[at - 1][:110] if 0 < at <= len(lines) else ""
    said = ", ".join(f"{f.rule}@{f.location.line} {f.variable or ''}" for f in report.findings)
    print(f"{word}: {case.kind} / {case.shape}, line {at}: {shown!r} -> {report.verdict} [{said}]")


def peer_figures(root: Path, wrong: list[Case], right: list[Case]) -> dict[str, Any]:
    try:
        from pcd.scanner import DEFAULT_MIN_WASTE, scan_file  # noqa: PLC0415
    except ImportError:
        return {"skipped": "prompt-cache-doctor is not installed (pip install prompt-cache-doctor)"}

    def flags(index: int, case: Case) -> bool:
        report = scan_file(str(path_of(root, index, case)))
        return report is not None and bool(
            report.static_tokens_after_first_dynamic >= DEFAULT_MIN_WASTE
            or report.volatile_prefix_vars
        )

    found = sum(flags(i, c) for i, c in enumerate(wrong))
    alarms = sum(flags(len(wrong) + i, c) for i, c in enumerate(right))
    return {
        "name": "prompt-cache-doctor scan (no line, no rule)",
        "found": round(found / len(wrong), 4),
        "false_alarms": alarms,
    }


def realistic(count: int, seed: int) -> list[str]:
    """Jinja2 templates of about the length that prompts have."""
    m = Maker(random.Random(seed))
    forms = [f for f in SHAPES if f[1].startswith("p.j") and f[0] != "jinja include"]
    made = []
    for index in range(count):
        case = m.case(VALUE_KINDS[index % len(VALUE_KINDS)], m.random.choice(forms))
        parts = [m.static() + "{% if tone %}{{ tone }}\n{% endif %}" for _ in range(4)]
        text = next(iter(case.files.values())).decode()
        made.append("".join([*parts[:2], text, *parts[2:]]))
    return made


def speed(root: Path) -> dict[str, Any]:
    texts = realistic(1000, 7)
    make_tokenizer(root / "t", texts, vocab_size=4096)
    folder = root / "prompts"
    folder.mkdir(parents=True)
    for index, text in enumerate(texts):
        (folder / f"{index:04}.jinja").write_text(text, encoding="utf-8")
    encode = Tokenizer.from_file(str(root / "t" / "tokenizer.json")).encode
    config = Config.model_validate({"targets": {"t": {"model": "m", "tokenizer": "t"}}}).at(root)
    lint_paths(config, [folder], target="t", cache=True)
    rounds = []
    for _ in range(ROUNDS):
        base = clock(lambda: parse_and_tokenise(folder, encode))
        cold = clock(lambda: lint_paths(config, [folder], target="t"))
        warm = clock(lambda: lint_paths(config, [folder], target="t", cache=True))
        rounds.append((base, cold, warm))
    base, cold, warm = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "parse_and_tokenise_seconds": round(base, 3),
        "lint_seconds": round(cold, 3),
        "lint_cached_seconds": round(warm, 3),
        "speed_ratio": round(statistics.median(c / b for b, c, _ in rounds), 2),
        "cache_ratio": round(statistics.median(w / c for _, c, w in rounds), 2),
    }


def parse_and_tokenise(folder: Path, encode: Callable[[str], object]) -> None:
    """What lint cannot do without: read, parse and tokenise every template."""
    environment = Environment(extensions=[do, loopcontrols])
    for path in sorted(folder.glob("*.jinja")):
        text = path.read_text(encoding="utf-8")
        with contextlib.suppress(TemplateSyntaxError):
            environment.parse(text)
        encode(text)


def clock(work: Callable[[], object]) -> float:
    """Processor seconds of this process, which other work on the machine does not stretch."""
    start = time.process_time()
    work()
    return time.process_time() - start


def memory(root: Path) -> dict[str, Any]:
    texts = realistic(1000, 9)
    for index in range(MEMORY_FILES):
        path = root / f"{index // 500:03}" / f"{index:05}.jinja"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{texts[index % len(texts)]}Number {index}.\n", encoding="utf-8")
    command = [sys.executable, __file__, CHILD, str(root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def memory_child(root: Path) -> int:
    seconds = clock(lambda: lint_paths(Config().at(root), [root]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "memory_files": MEMORY_FILES,
                "memory_mb": round(peak),
                "memory_seconds": round(seconds, 1),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
