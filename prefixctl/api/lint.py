"""Lint prompts: what ends the shared prefix, what is lost behind it, and what can be fixed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from prefixctl.config import Config
from prefixctl.core.blocks import Alignment
from prefixctl.core.prompt import Prompt
from prefixctl.errors import InputError
from prefixctl.lint.baseline import (
    apply_baseline,
    load_baseline,
    replace_file,
    with_fingerprints,
    write_baseline,
)
from prefixctl.lint.cache import Cache
from prefixctl.lint.find import Found, find_files
from prefixctl.lint.fix import FixedFile, fix_file
from prefixctl.lint.report import LintReport
from prefixctl.lint.rule import Unbumped
from prefixctl.lint.run import Setup, lint_files
from prefixctl.lint.tokens import EstimatedTokens, ExactTokens
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.prompts.tokenize import ServerTokenizer
from prefixctl.registry.bump import unbumped
from prefixctl.sources.lockfile import load_lock

DEFAULT_BLOCK_SIZE = 16
CACHE_FOLDER = Path(".prefixctl/lint-cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """The files to lint, and how.

    Attributes:
        files: The files.
        setup: How.
        target: The target's name, if there is one.
        settings: Names all of the setup that a file's report depends on; None if a server counts
            the tokens, since nobody here can tell when it changes.
    """

    files: list[Found]
    setup: Setup
    target: str | None
    settings: str | None


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
    known = () if baseline is None else load_baseline(baseline)
    job = _job(config, paths, target)
    with ExitStack() as stack:
        setup = job.setup
        if cache and job.settings is not None:
            kept = stack.enter_context(Cache(config.root / CACHE_FOLDER, job.settings))
            setup = replace(setup, cache=kept)
        files = lint_files(job.files, setup)
    report = LintReport(files=files, block_size=job.setup.block_size, target=job.target)
    named = with_fingerprints(report, config.root)
    return named if baseline is None else apply_baseline(named, known, config.root)


def save_baseline(config: Config, report: LintReport, path: Path) -> int:
    """Write the findings of a report as a baseline; returns their number.

    Raises:
        InputError: If the file cannot be written.
    """
    return write_baseline(report, path, config.root)


def fix_paths(
    config: Config,
    paths: Sequence[Path] = (),
    *,
    target: str | None = None,
    unsafe: bool = False,
    write: bool = True,
) -> tuple[FixedFile, ...]:
    """Fix files and folders. Governed prompts are left to their authors: a change needs a bump.

    Args:
        config: The configuration.
        paths: As for `lint_paths`.
        target: As for `lint_paths`.
        unsafe: Whether lines may be moved.
        write: Whether to write the files.

    Raises:
        InputError: As `lint_paths`, or if a file cannot be written.
        NothingToDoError: If nothing was found to lint.
    """
    job = _job(config, paths, target)
    fixed = [f for file in job.files if (f := fix_file(file, job.setup, unsafe=unsafe))]
    for one in fixed if write else ():
        replace_file(Path(one.path), one.after.data)
    return tuple(fixed)


def _job(config: Config, paths: Sequence[Path], target: str | None) -> _Job:
    files = find_files(paths or [config.prompts_dir], config.lint.exclude, root=config.root)
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
        aligned=None if loaded is None else lambda prompt: _alignment(config, prompt, loaded),
    )
    return _Job(files=files, setup=setup, target=target, settings=_settings(setup, loaded))


def _settings(setup: Setup, target: Target | None) -> str | None:
    if target is not None and isinstance(target.tokenizer, ServerTokenizer):
        return None
    tokenizer = None if target is None else target.tokenizer.digest
    return json.dumps([setup.block_size, setup.block_size_known, tokenizer])


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
