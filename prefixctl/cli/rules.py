"""``prefixctl rules``: generate alert and recording rules, and test them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, load, out, print_json
from prefixctl.errors import ExitCode

if TYPE_CHECKING:
    from prefixctl.api.rules import GeneratedRules
    from prefixctl.metrics.verify import PromtoolResult

group = typer.Typer(no_args_is_help=True, help="Alert and recording rules for Prometheus.")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(group, name="rules")


PrefixOption = Annotated[
    str, typer.Option(help="What the engine's series begin with, if renamed on scrape.")
]
SelectorOption = Annotated[
    str | None,
    typer.Option(
        help='Label matchers for every series: job="vllm"; metrics.selector of the configuration '
        "if omitted.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a threshold or window: ttft_p99_seconds=1.",
        show_default=False,
    ),
]


@group.command()
def generate(
    context: typer.Context,
    profile: Annotated[str, typer.Option(help="Which rules: day1.")] = "day1",
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder; `rules` beside prefixctl.yaml if omitted."),
    ] = None,
    metric_prefix: PrefixOption = "vllm:",
    selector: SelectorOption = None,
    setting: SetOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 5 if a file is not current.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write a rule file and its unit tests."""
    from prefixctl.api.rules import check_generated, generate_rules

    action = check_generated if check else generate_rules
    config = load(context)
    result = action(
        config,
        profile=profile,
        out_dir=out_dir or config.root / "rules",
        metric_prefix=metric_prefix,
        selector=selector,
        settings=tuple(setting or ()),
    )
    if output is Format.JSON:
        print_json(_generated_as_json(result))
        return
    for file in result.files:
        word = "written" if file.changed else "current"
        out().print(f"{file.path}: {word}", markup=False)
    out().print(
        f"{result.recording_rules} recording rules, {len(result.alerts)} alerts, "
        f"{result.unit_tests} unit tests"
    )


@group.command("test")
def test_(
    folder: Annotated[Path, typer.Argument(help="Folder with generated rules.")] = Path("rules"),
    output: FormatOption = Format.TEXT,
) -> None:
    """Check the generated rules with promtool, and run their unit tests; exit 1 if any fails."""
    from prefixctl.api.rules import test_rules

    results = test_rules(folder)
    if output is Format.JSON:
        print_json({"schema": 1, "checks": [_check_as_json(one) for one in results]})
    else:
        for one in results:
            word = "passed" if one.passed else "FAILED"
            out().print(f"promtool {' '.join(one.command)}: {word}", markup=False)
            out().print(one.output, markup=False)
    if not all(one.passed for one in results):
        raise typer.Exit(ExitCode.FINDINGS)


def _generated_as_json(result: GeneratedRules) -> dict[str, object]:
    return {
        "schema": 1,
        "profile": result.profile,
        "files": [{"path": str(f.path), "changed": f.changed} for f in result.files],
        "recording_rules": result.recording_rules,
        "alerts": list(result.alerts),
        "unit_tests": result.unit_tests,
    }


def _check_as_json(result: PromtoolResult) -> dict[str, object]:
    return {
        "command": ["promtool", *result.command],
        "passed": result.passed,
        "output": result.output,
    }
