"""Lint prompts: what ends the shared prefix, and what is lost behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefixctl.config import Config
from prefixctl.core.blocks import Alignment
from prefixctl.core.prompt import Prompt
from prefixctl.errors import InputError
from prefixctl.lint.find import find_files
from prefixctl.lint.report import LintReport
from prefixctl.lint.rule import Unbumped
from prefixctl.lint.run import Setup, lint_files
from prefixctl.lint.tokens import EstimatedTokens, ExactTokens
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.registry.bump import unbumped
from prefixctl.sources.lockfile import load_lock

DEFAULT_BLOCK_SIZE = 16


def lint_paths(
    config: Config,
    paths: Sequence[Path] = (),
    *,
    target: str | None = None,
) -> LintReport:
    """Lint files and folders.

    Args:
        config: The configuration.
        paths: Files and folders; the folder of governed prompts if empty.
        target: The deployment whose tokenizer and block size count; the only one if the
            configuration has just one, else tokens are estimated.

    Raises:
        InputError: If a path does not exist, or the target cannot be loaded.
        NothingToDoError: If nothing was found to lint.
    """
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
    return LintReport(files=lint_files(files, setup), block_size=setup.block_size, target=target)


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
