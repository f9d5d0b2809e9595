"""Lint against labelled templates: agreement of verdict and line, every disagreement listed.

    python bench/corpus_lint.py [CORPUS] [--speed TOKENIZER]

CORPUS holds labels.tsv (path, verdict, line, ...), ../shared/corpus if omitted. --speed repeats the
Jinja2 templates to 1,000 files and prints lint's time as a ratio to parsing them with Jinja2 and
tokenising them, in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, TemplateSyntaxError
from jinja2.ext import loopcontrols
from tokenizers import Tokenizer

from prefixctl.api.lint import lint_paths
from prefixctl.config import Config
from prefixctl.errors import PrefixctlError
from prefixctl.lint.report import FileReport

JINJA = frozenset([".jinja", ".jinja2", ".j2"])


ARGUED = {
    "ikawrakow+ik_llama.cpp/models/templates/Kimi-K2-Instruct.jinja": (
        "`tools | tojson` is printed at the very front in the client's key order. The same "
        "construction is labelled warn in Kimi-K2.jinja, chat_render_truth.tsv measures "
        "tools_key_order as sensitive here too, and by the definition order left to the client is "
        "a warn. The label speaks of the tool call ids alone."
    ),
    "IBM+vllm/examples/tool_chat_template_glm4.jinja": (
        "Every tool is printed by `tojson(indent=4)` in the client's key order, ahead of the "
        "conversation; measured as sensitive in chat_render_truth.tsv. By the definition a warn, "
        "as the label of every other template that dumps tools so. The label speaks of the system "
        "text that is dropped."
    ),
    "PrefectHQ+ControlFlow/src/controlflow/orchestration/prompt_templates/flow.jinja": (
        "The loop over the context is the last thing in the file: no static text stands behind it, "
        "so nothing that could be shared is lost. By the definition a value counts only ahead of a "
        "block of static text. The label supposes text of another file behind it."
    ),
    "SWE-agent+SWE-agent/config/coding_challenge.yaml": (
        "`instance_template` prints the issue on its third line, ahead of some 600 tokens of "
        "static instructions: the layout for which default.yaml, its sibling, is labelled break. "
        "The label speaks of `system_template` alone; of several prompts the worst one counts."
    ),
}
"""Labels that contradict the definition of a verdict, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One labelled file and what lint says of it."""

    path: str
    wanted: str
    wanted_line: int | None
    verdict: str
    lines: tuple[int, ...]
    worst: str

    @property
    def agrees(self) -> bool:
        """Whether the verdict is the label's."""
        return self.verdict == self.wanted

    @property
    def line_agrees(self) -> bool:
        """Whether a finding stands on the label's line."""
        return self.wanted_line is None or self.wanted_line in self.lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=Path("../shared/corpus"))
    parser.add_argument("--speed", type=Path, metavar="TOKENIZER")
    options = parser.parse_args()
    labels = options.corpus / "labels.tsv"
    if not labels.is_file():
        print(f"no labels at {labels}", file=sys.stderr)
        return 3
    with labels.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    outcomes = [outcome(options.corpus, row) for row in rows]
    figures = agreement(outcomes)
    if options.speed:
        figures["speed"] = speed(options.corpus, rows, options.speed)
    print(json.dumps(figures, indent=2))
    return 0


def outcome(corpus: Path, row: dict[str, str]) -> Outcome:
    path = corpus / row["path"]
    try:
        report: FileReport | None = lint_paths(Config().at(corpus), [path]).files[0]
    except PrefixctlError:
        report = None
    findings = report.findings if report else ()
    return Outcome(
        path=row["path"],
        wanted=row["verdict"],
        wanted_line=int(row["line"]) if row["line"] and row["verdict"] != "ok" else None,
        verdict=report.verdict.value if report else "error",
        lines=tuple(f.location.line for f in findings),
        worst=max(findings, key=lambda f: f.severity).severity.label if findings else "",
    )


def agreement(outcomes: list[Outcome]) -> dict[str, object]:
    for o in outcomes:
        if not o.agrees:
            print(f"verdict  {o.wanted:5} but {o.verdict:5}  {o.path}  lines {list(o.lines)}")
    for o in outcomes:
        if o.agrees and not o.line_agrees:
            print(f"line     {o.wanted_line} not in {list(o.lines)}  {o.path}")
    alarms = [o for o in outcomes if o.wanted == "ok" and o.worst == "error"]
    for o in alarms:
        print(f"severity error on a file labelled ok  {o.path}")
    for o in outcomes:
        if not o.agrees and o.path in ARGUED:
            print(f"\n{o.path}\n  label {o.wanted}, lint {o.verdict}: {ARGUED[o.path]}")
    lined = [o for o in outcomes if o.wanted_line is not None]
    return {
        "files": len(outcomes),
        "verdict_agrees": share(sum(o.agrees for o in outcomes), len(outcomes)),
        "verdict_agrees_or_is_argued": share(
            sum(o.agrees or o.path in ARGUED for o in outcomes), len(outcomes)
        ),
        "line_agrees": share(sum(o.line_agrees for o in lined), len(lined)),
        "unreadable": [o.path for o in outcomes if o.verdict == "error" and o.wanted != "error"],
        "false_alarms": len(alarms),
        "false_alarms_not_argued": sum(o.path not in ARGUED for o in alarms),
    }


def share(count: int, total: int) -> str:
    return f"{count}/{total} = {count / max(total, 1):.1%}"


def speed(corpus: Path, rows: list[dict[str, str]], tokenizer: Path) -> dict[str, float]:
    texts = [
        (corpus / r["path"]).read_text(encoding="utf-8", errors="replace")
        for r in rows
        if Path(r["path"]).suffix in JINJA
    ]
    encode = Tokenizer.from_file(str(tokenizer)).encode
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for index in range(1000):
            (root / f"{index:04}.jinja").write_text(texts[index % len(texts)], encoding="utf-8")
        (root / "t").mkdir()
        (root / "t" / "tokenizer.json").write_bytes(tokenizer.read_bytes())
        config = Config.model_validate(
            {"targets": {"t": {"model": "m", "tokenizer": "t"}}, "lint": {"exclude": ["*.json"]}}
        ).at(root)

        pairs = []
        for _ in range(3):
            base = clock(lambda: parse_and_tokenise(root, encode))
            mine = clock(lambda: lint_paths(config, [root], target="t"))
            estimated = clock(lambda: lint_paths(config, [root]))
            pairs.append((base, mine, estimated))
    base, mine, estimated = (statistics.median(p) for p in zip(*pairs, strict=True))
    return {
        "parse_and_tokenise_seconds": round(base, 3),
        "lint_seconds": round(mine, 3),
        "lint_estimated_seconds": round(estimated, 3),
        "ratio": round(mine / base, 3),
    }


def parse_and_tokenise(folder: Path, encode: Callable[[str], object]) -> None:
    """What lint cannot do without: read, parse and tokenise every template."""
    environment = Environment(extensions=[loopcontrols])
    for path in sorted(folder.glob("*.jinja")):
        text = path.read_text(encoding="utf-8")
        with contextlib.suppress(TemplateSyntaxError):
            environment.parse(text)
        encode(text)


def clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
