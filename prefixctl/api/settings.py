"""Check engine launch settings: what in them keeps a prefix from being reused, seen or isolated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.config import Config
from prefixctl.errors import InputError, NothingToDoError
from prefixctl.lint.baseline import (
    apply_baseline,
    load_baseline,
    with_fingerprints,
    write_baseline,
)
from prefixctl.lint.families import setting_ids
from prefixctl.lint.per_path import PerPath
from prefixctl.lint.report import FileReport, LintReport
from prefixctl.lint.settings.rule import Expected, GovernedPrefix
from prefixctl.lint.settings.run import Known, check_settings, unreadable
from prefixctl.sources.lockfile import load_lock
from prefixctl.sources.settings.launch import Engine, Launch, SettingsFile
from prefixctl.sources.settings.read import find_settings, read_settings

DEFAULT_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsResult:
    """The report, in lint's shape, and the files that start no engine."""

    report: LintReport
    files: tuple[SettingsFile, ...]
    passed_over: tuple[str, ...]


def check_launch_files(
    config: Config,
    paths: Sequence[Path],
    *,
    target: str | None = None,
    baseline: Path | None = None,
) -> SettingsResult:
    """Check the launches in files.

    Args:
        config: The configuration; its lock gives the governed prompts.
        paths: Scripts, Dockerfiles, compose files, Helm values, manifests, and folders of them.
        target: Compare every launch with it. If omitted, a launch is compared with the target of
            its model.
        baseline: A file with findings that are known; those of lint may stand in it as well.

    Raises:
        ConfigError: If there is no such target.
        InputError: If a path does not exist, or the lock or the baseline cannot be used.
        NothingToDoError: If no file starts an engine.
    """
    if target is not None:
        config.target(target)
    known = () if baseline is None else load_baseline(baseline, setting_ids())
    per_path = PerPath(config.lint.paths, root=config.root, source=config.path)
    read: list[SettingsFile] = []
    broken: list[FileReport] = []
    for path in find_settings(paths):
        try:
            read.append(read_settings(path))
        except InputError as exc:
            broken.append(unreadable(exc, str(path)))
    started = [f for f in read if any(x.engine is not Engine.UNKNOWN for x in f.launches)]
    if not started and not broken:
        raise NothingToDoError(
            "nothing to check: no start of vLLM or SGLang was found",
            path=", ".join(str(p) for p in paths[:3]) or None,
            hint="give scripts, Dockerfiles, compose files, Helm values or Kubernetes manifests",
        )
    checked = check_settings(started, _known(config, target))
    reports = [*(per_path.of(Path(r.path)).applied(r) for r in checked), *broken]
    size = config.targets[target].block_size if target else config.lint.block_size
    files = tuple(sorted(reports, key=lambda r: r.path))
    report = LintReport(files=files, block_size=size or DEFAULT_BLOCK_SIZE, target=target)
    report = with_fingerprints(report, config.root)
    if baseline is not None:
        report = apply_baseline(report, known, config.root)
    over = tuple(f.path for f in read if f not in started)
    return SettingsResult(report=report, files=tuple(started), passed_over=over)


def save_settings_baseline(config: Config, report: LintReport, path: Path) -> int:
    """Write the findings of a report as a baseline; returns their number.

    What the file knows of lint's findings stays in it.

    Raises:
        InputError: If the file cannot be written, or is there and no baseline.
    """
    return write_baseline(report, path, config.root, setting_ids())


def _known(config: Config, target: str | None) -> Known:
    lock = load_lock(config.lock_path)

    def target_of(launch: Launch) -> Expected | None:
        if target is not None:
            return Expected(name=target, settings=config.target(target))
        names = {launch.model, launch.value("--served-model-name")} - {None}
        for name, settings in config.targets.items():
            if {settings.model, config.served_name(settings)} & names:
                return Expected(name=name, settings=settings)
        return None

    def prefixes(name: str) -> tuple[GovernedPrefix, ...]:
        newest = {prompt: entries[-1] for prompt, entries in lock.prompts.items() if entries}
        return tuple(
            GovernedPrefix(
                name=prompt,
                shared_tokens=entry.targets[name].shared_tokens,
                request_tokens=entry.targets[name].request_tokens,
            )
            for prompt, entry in sorted(newest.items())
            if name in entry.targets
        )

    return Known(target_of=target_of, prefixes=prefixes)
