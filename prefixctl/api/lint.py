"""Lint prompts: what ends the shared prefix, what is lost behind it, and what can be fixed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from prefixctl.config import Config
from prefixctl.core.blocks import Alignment
from prefixctl.core.findings import Location
from prefixctl.core.prompt import PROMPT_FILE, Prompt
from prefixctl.errors import InputError
from prefixctl.lint.baseline import (
    apply_baseline,
    load_baseline,
    with_fingerprints,
    write_baseline,
    write_file,
)
from prefixctl.lint.cache import Cache
from prefixctl.lint.families import prompt_ids
from prefixctl.lint.find import Found, find_files, named_file
from prefixctl.lint.fix import FixedFile, Proposed, fix_file, propose_fixes
from prefixctl.lint.per_path import PerPath
from prefixctl.lint.report import FileReport, Known, LintReport
from prefixctl.lint.rule import Unbumped
from prefixctl.lint.run import Setup, lint_file, lint_files
from prefixctl.lint.tokens import EstimatedTokens, ExactTokens
from prefixctl.lint.watch import Watch
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.prompts.tokenize import ServerTokenizer
from prefixctl.registry.bump import unbumped
from prefixctl.sources.lockfile import load_lock

DEFAULT_BLOCK_SIZE = 16
CACHE_FOLDER = Path(".prefixctl/lint-cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The files to lint, and how.

    Attributes:
        files: The files.
        setup: How.
        target: The target's name, if there is one.
        settings: Names all of the setup that a file's report depends on; None if a server counts
            the tokens, since nobody here can tell when it changes.
        passed_over: Source files of the folders that are not looked at.
    """

    files: list[Found]
    setup: Setup
    target: str | None
    settings: str | None
    passed_over: tuple[str, ...] = ()


def lint_paths(
    config: Config,
    paths: Sequence[Path] = (),
    *,
    target: str | None = None,
    baseline: Path | None = None,
    cache: bool = False,
) -> LintReport:
    """Lint files and folders.

    Args:
        config: The configuration.
        paths: Files and folders; the folder of governed prompts if empty.
        target: The deployment whose tokenizer and block size count; the only one if the
            configuration has just one, else tokens are estimated.
        baseline: A file with findings that are known.
        cache: Whether to take unchanged files from the cache beside the configuration, and to
            write new ones there.

    Raises:
        InputError: If a path does not exist, or the target or the baseline cannot be loaded.
        NothingToDoError: If nothing was found to lint.
    """
    known = () if baseline is None else load_baseline(baseline, prompt_ids())
    job = lint_job(config, paths, target)
    with ExitStack() as stack:
        setup = job.setup
        if cache and job.settings is not None:
            kept = stack.enter_context(Cache(config.root / CACHE_FOLDER, job.settings))
            setup = replace(setup, cache=kept)
        files = lint_files(job.files, setup)
    return _whole(config, job, files, None if baseline is None else known)


def lint_text(
    config: Config,
    data: bytes,
    name: Path,
    *,
    target: str | None = None,
    baseline: Path | None = None,
) -> LintReport:
    """Lint what an editor holds: the content of a file, saved or not.

    Args:
        config: The configuration.
        data: The content.
        name: The file; its name says how it is read. A file of a governed prompt is linted as a
            part of it, with the other files from the disk.
        target: As for `lint_paths`.
        baseline: As for `lint_paths`.

    Raises:
        InputError: If the target or the baseline cannot be loaded.
    """
    known = None if baseline is None else load_baseline(baseline, prompt_ids())
    found = named_file(name)
    job = _job(config, [found], target)
    overlay = {name.relative_to(found.path).as_posix(): data} if found.governed else None
    report = lint_file(found, job.setup, data=data, overlay=overlay)
    return _whole(config, job, (report,) if report else (), known)


def watch_paths(load: Callable[[], Config], paths: Sequence[Path] = ()) -> Watch:
    """Watches the files that `lint_paths` would lint, the configuration and the lock.

    Args:
        load: Loads the configuration; it may change as well, and be wrong for a while.
        paths: As for `lint_paths`.

    Raises:
        ConfigError: If the configuration is wrong from the start.
    """
    config = load()

    def find() -> list[Found]:
        now = load()
        return find_files([*paths] or [now.prompts_dir], now.lint.exclude, root=now.root)

    return Watch(find, [Path(config.path), config.lock_path])


def _whole(
    config: Config, job: Job, files: tuple[FileReport, ...], known: Sequence[Known] | None
) -> LintReport:
    report = LintReport(
        files=files,
        block_size=job.setup.block_size,
        target=job.target,
        passed_over=job.passed_over,
    )
    named = with_fingerprints(report, config.root)
    return named if known is None else apply_baseline(named, known, config.root)


def save_baseline(config: Config, report: LintReport, path: Path) -> int:
    """Write the findings of a report as a baseline; returns their number.

    What the file knows of findings in engine settings stays in it.

    Raises:
        InputError: If the file cannot be written, or is there and no baseline.
    """
    return write_baseline(report, path, config.root, prompt_ids())


def fix_paths(
    config: Config,
    paths: Sequence[Path] = (),
    *,
    target: str | None = None,
    unsafe: bool = False,
    write: bool = True,
    on_written: Callable[[FixedFile], None] = lambda _: None,
) -> tuple[FixedFile, ...]:
    """Fix files and folders. A fix in a section of a governed prompt needs a bump afterwards.

    Args:
        config: The configuration.
        paths: As for `lint_paths`.
        target: As for `lint_paths`.
        unsafe: Whether lines may be moved.
        write: Whether to write the files.
        on_written: Called with each file that was written, at once: a later one may fail.

    Raises:
        InputError: As `lint_paths`, or if a file cannot be written.
        NothingToDoError: If nothing was found to lint.
    """
    job = lint_job(config, paths, target)
    fixed = [f for file in job.files for f in fix_file(file, job.setup, unsafe=unsafe)]
    for one in fixed if write else ():
        write_file(Path(one.path), one.after.data)
        on_written(one)
    return tuple(fixed)


def proposed_fixes(
    config: Config, report: LintReport, paths: Sequence[Path] = (), *, target: str | None = None
) -> dict[tuple[str, Location], Proposed]:
    """The safe fix of every finding of a report that has one, by its rule and place.

    Args:
        config: The configuration.
        report: Of the same paths; files without findings are not looked at.
        paths: As for `lint_paths`.
        target: As for `lint_paths`.
    """
    job = lint_job(config, paths, target)
    found = {f.path for f in report.files if f.findings or f.baselined}
    wanted = [f for f in job.files if str(f.path / PROMPT_FILE if f.governed else f.path) in found]
    return {key: fix for f in wanted for key, fix in propose_fixes(f, job.setup).items()}


def lint_job(config: Config, paths: Sequence[Path], target: str | None) -> Job:
    """The files to lint, and how. Arguments and errors as in `lint_paths`."""
    passed_over: list[Path] = []
    files = find_files(
        paths or [config.prompts_dir],
        config.lint.exclude,
        root=config.root,
        passed_over=passed_over,
    )
    found = {f.path for f in files}
    left = tuple(str(p) for p in dict.fromkeys(passed_over) if p not in found)
    return replace(_job(config, files, target), passed_over=left)


def _job(config: Config, files: list[Found], target: str | None) -> Job:
    if target is None and len(config.targets) == 1:
        target = next(iter(config.targets))
    loaded = None if target is None else load_target(config, target)
    known = loaded.settings.block_size if loaded else config.lint.block_size
    setup = Setup(
        counter=ExactTokens(loaded.tokenizer.encode) if loaded else EstimatedTokens(),
        block_size=known or DEFAULT_BLOCK_SIZE,
        block_size_known=known is not None,
        root=config.root,
        unbumped=_unbumped(config),
        per_path=PerPath(config.lint.paths, root=config.root, source=config.path),
        aligned=None if loaded is None else lambda prompt: _alignment(config, prompt, loaded),
    )
    return Job(files=files, setup=setup, target=target, settings=_settings(config, setup, loaded))


def _settings(config: Config, setup: Setup, target: Target | None) -> str | None:
    if target is not None and isinstance(target.tokenizer, ServerTokenizer):
        return None
    tokenizer = None if target is None else target.tokenizer.digest
    paths = [entry.model_dump_json() for entry in config.lint.paths]
    return json.dumps([setup.block_size, setup.block_size_known, tokenizer, paths])


def _unbumped(config: Config) -> Unbumped | None:
    """What changed since the lock's newest version; None where nothing was ever bumped."""
    if not (config.prefix_cache.versioned and config.lock_path.is_file()):
        return None
    lock = load_lock(config.lock_path)
    return lambda prompt: unbumped(prompt, lock)


def _alignment(config: Config, prompt: Prompt, target: Target) -> Alignment | None:
    """The exact shared tokens of a governed prompt; None if it cannot be measured on the target."""
    try:
        return measure(prompt, target, config.prefix_cache).alignment
    except InputError:
        return None
