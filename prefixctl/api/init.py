"""Adopt a repository: what would govern its prompts, and writing that."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from prefixctl.adopt.find import find_prompts
from prefixctl.adopt.model import Proposal, Scope
from prefixctl.adopt.propose import propose
from prefixctl.api.lint import lint_paths, save_baseline
from prefixctl.config import CONFIG_NAME, Config, load_config
from prefixctl.core.findings import Verdict
from prefixctl.core.prompt import Volatility
from prefixctl.errors import InputError, NothingToDoError
from prefixctl.lint.evaluate.names import guess_path
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.sources.files import real_path
from prefixctl.yamlfile import is_there

SHOWN = 3
CHAT_TEMPLATE = (
    "a model's chat template, which is named in a target; `prefixctl template` shows what it does "
    "to the prefix"
)


def propose_adoption(root: Path) -> Proposal:
    """What `prefixctl init` would write in a folder. Changes nothing.

    Raises:
        InputError: If the folder is missing, or its prefixctl.yaml cannot be used.
        NothingToDoError: If it holds no prompt.
    """
    found = find_prompts(root)
    prompts = _configured(root)
    proposal = propose(root, found, guess_scope, prompts=prompts)
    if not proposal.prompts and not proposal.governed:
        raise NothingToDoError(
            "no prompt was found that could be governed", path=str(root), hint=_why(proposal)
        )
    if prompts is not None:
        return proposal
    unread = _unreadable(root, proposal)
    return propose(root, found, guess_scope, prompts=None, exclude=unread) if unread else proposal


def write_adoption(root: Path, proposal: Proposal) -> tuple[str, ...]:
    """Write the files of a proposal, none of which may exist, and the baseline of the day.

    Returns:
        The paths that were written.

    Raises:
        InputError: If one appeared since, or cannot be written; the ones before it are written.
    """
    written = []
    for file in proposal.files:
        path = root / file.path
        try:
            if not real_path(path).is_relative_to(real_path(root)):
                raise InputError("leads out of the folder", path=str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="") as stream:
                stream.write(file.text)
        except OSError as exc:
            raise InputError(f"cannot be written: {exc.strerror}", path=str(path)) from exc
        written.append(file.path)
    if proposal.baseline:
        config = load_config(root / CONFIG_NAME)
        save_baseline(config, lint_paths(config), root / proposal.baseline)
        written.append(proposal.baseline)
    return tuple(written)


def guess_scope(name: str) -> Scope:
    """How often a parameter changes, by its name; a request if its name says nothing."""
    guess = guess_path(name)
    if guess.volatility is not None:
        scope = max(guess.volatility, Volatility.DEPLOYMENT)
        return Scope(scope=scope, reason=f"its name says '{guess.word}'" if guess.word else "")
    if guess.kind is CauseKind.SETTLED:
        return Scope(scope=Volatility.DEPLOYMENT, reason="its name speaks of settings")
    return Scope(scope=Volatility.REQUEST, reason="its name says nothing, so the safe one")


def _why(proposal: Proposal) -> str:
    """What stood in the way, or what would have been found."""
    reasons = [f"{x.path}: {x.reason}" for x in proposal.left_out[:SHOWN]]
    reasons += [f"{p}: {CHAT_TEMPLATE}" for p in proposal.chat_templates[: SHOWN - len(reasons)]]
    return "; ".join(reasons) or (
        "prompts are Jinja templates, texts in prompt folders, message lists, and long strings "
        "under a prompt's name in YAML, JSON, Python, JavaScript and TypeScript"
    )


def _configured(root: Path) -> str | None:
    """The folder of governed prompts, if the folder has a configuration."""
    if not is_there(root / CONFIG_NAME):
        return None
    return PurePosixPath(load_config(root / CONFIG_NAME).prompts.as_posix()).as_posix()


def _unreadable(root: Path, proposal: Proposal) -> list[str]:
    """Files that the next lint of the governed prompts' folder would stumble over."""
    folder = root / proposal.folder
    if not folder.is_dir():
        return []
    try:
        report = lint_paths(Config().at(root), [folder])
    except InputError:
        return []
    return sorted(
        Path(f.path).relative_to(root).as_posix()
        for f in report.files
        if f.verdict is Verdict.ERROR
    )
