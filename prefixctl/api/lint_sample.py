"""Sample templates: what static analysis missed, and what it claimed wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefixctl.api.lint import lint_job
from prefixctl.config import Config
from prefixctl.errors import NothingToDoError
from prefixctl.lint.sample_files import SampleReport, load_values, sample_files
from prefixctl.prompts.target import load_target


def sample_paths(
    config: Config,
    paths: Sequence[Path] = (),
    *,
    target: str | None = None,
    values: Path | None = None,
) -> SampleReport:
    """Render the Jinja2 templates in files and folders with several sets of values, and compare.

    Args:
        config: The configuration.
        paths: As for `prefixctl.api.lint.lint_paths`.
        target: The deployment whose tokenizer counts; characters alone are compared without one.
        values: A YAML or JSON file with a list of sets of values; generated if omitted.

    Raises:
        InputError: If a path does not exist, or the target or the values cannot be loaded.
        NothingToDoError: If there is no template to render.
    """
    given = () if values is None else load_values(values)
    job = lint_job(config, paths, target)
    encode = None if job.target is None else load_target(config, job.target).tokenizer.encode
    report = sample_files(job.files, job.setup, values=given, encode=encode)
    if not report.samples and not report.unreadable:
        why = next(iter(report.skipped.items()), None)
        raise NothingToDoError(
            "no Jinja2 template to render",
            path=", ".join(str(p) for p in paths) or str(config.prompts_dir),
            hint=f"{why[0]}: {why[1]}" if why else None,
        )
    return report
