"""From what a repository holds to the files that would govern it. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from prefixctl.adopt.check import Checked, check_candidate
from prefixctl.adopt.model import (
    Candidate,
    Found,
    GuessScope,
    LeftOut,
    Piece,
    PlannedFile,
    Proposal,
    Scope,
)
from prefixctl.adopt.place import Placed, place, prompts_folder
from prefixctl.adopt.write import BASELINE, CI, CI_PATH, config_yaml, prompt_yaml
from prefixctl.config import CONFIG_NAME
from prefixctl.core.prompt import PROMPT_FILE, SectionKind, Volatility
from prefixctl.errors import InputError, PromptError
from prefixctl.ids import PromptName
from prefixctl.prompts.load import parse_prompt
from prefixctl.prompts.render import probe_values, render
from prefixctl.yamlfile import is_there, read_bytes

QUESTION_FILE = "user_message.md.j2"
_QUESTION_NAMES = ("question", "user_message", "request_text")


@dataclass(slots=True, kw_only=True)
class _Draft:
    files: dict[str, str] = field(default_factory=dict)
    present: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    deployment: set[str] = field(default_factory=set)


def propose(
    root: Path, found: Found, guess: GuessScope, *, prompts: str | None, exclude: Sequence[str] = ()
) -> Proposal:
    """The files that would govern the prompts of a repository.

    Args:
        root: The repository.
        found: What it holds.
        guess: Guesses a parameter's scope from its name.
        prompts: The folder of governed prompts if a configuration names it already.
        exclude: Paths that lint cannot read, for a new configuration.
    """
    draft = _Draft(left_out=list(found.left_out))
    checked: dict[Candidate, Checked] = {}
    for candidate in found.candidates:
        if candidate.origin not in found.adopted:
            try:
                checked[candidate] = check_candidate(candidate, root)
            except PromptError as exc:
                draft.left_out.append(LeftOut(path=candidate.origin, reason=exc.message))
    folder = prompts if prompts is not None else prompts_folder(list(checked), found.governed)
    everything = [*(c.source for c in found.candidates), *found.chat_templates]
    for placed in place(list(checked), folder, found.names, everything):
        _adopt(draft, root, placed, checked[placed.candidate], guess)
    if draft.prompts or found.governed:
        config = config_yaml(folder, exclude, found.chat_templates, sorted(draft.deployment))
        _plan(draft, root, CONFIG_NAME, config)
        _plan(draft, root, CI_PATH, CI)
    return Proposal(
        files=tuple(PlannedFile(path=p, text=t) for p, t in draft.files.items()),
        present=tuple(draft.present),
        prompts=tuple(draft.prompts),
        baseline=None if is_there(root / BASELINE) or not draft.files else BASELINE,
        folder=folder,
        governed=len(found.governed),
        left_out=tuple(draft.left_out),
        chat_templates=found.chat_templates,
    )


def _adopt(draft: _Draft, root: Path, placed: Placed, checked: Checked, guess: GuessScope) -> None:
    """Plan one prompt; leave it out if the library itself would refuse it."""
    candidate = placed.candidate
    scopes = {name: guess(name) for name in checked.parameters}
    pieces = list(candidate.pieces)
    new = {} if placed.in_place else {p.file: p.text for p in pieces} | dict(checked.included)
    if not any(s.scope.is_dynamic for s in scopes.values()):
        name = next(n for n in (*_QUESTION_NAMES, *_QUESTION_NAMES) if n not in scopes)
        scopes[name] = Scope(scope=Volatility.REQUEST, reason="what the user asks")
        pieces.append(_question(name))
        new[QUESTION_FILE] = pieces[-1].text
    own = None if placed.name == PurePosixPath(placed.folder).name else placed.name
    text = prompt_yaml(candidate.origin, pieces, scopes, name=own)
    try:
        _try(root, placed, {PROMPT_FILE: text, **new}, pieces, checked)
    except InputError as exc:
        draft.left_out.append(LeftOut(path=candidate.origin, reason=exc.message))
        return
    draft.prompts.append(placed.name)
    draft.deployment |= {n for n, s in scopes.items() if s.scope is Volatility.DEPLOYMENT}
    for file, content in {PROMPT_FILE: text, **new}.items():
        _plan(draft, root, f"{placed.folder}/{file}", content)


def _question(name: str) -> Piece:
    return Piece(kind=SectionKind.USER, file=QUESTION_FILE, text=f"{{{{ {name} }}}}")


def _try(
    root: Path,
    placed: Placed,
    new: dict[str, str],
    pieces: Sequence[Piece],
    checked: Checked,
) -> None:
    """Load and render the prompt as it would lie on the disk.

    Raises:
        InputError: If it cannot be used.
    """
    if is_there(root / placed.folder / QUESTION_FILE) and QUESTION_FILE in new:
        raise PromptError(f"{QUESTION_FILE} is there already", path=placed.folder)
    files = {name: text.encode() for name, text in new.items()}
    for name in {p.file for p in pieces} | set(checked.included):
        if name not in files:
            files[name] = read_bytes(root / placed.folder / name)
    prompt = parse_prompt(files, name=PromptName(placed.name), origin=placed.folder)
    deployment = {
        n: "value" for n, p in prompt.parameters.items() if p.scope is Volatility.DEPLOYMENT
    }
    render(prompt, probe_values(prompt, 0, deployment))


def _plan(draft: _Draft, root: Path, path: str, text: str) -> None:
    if is_there(root / path):
        draft.present.append(path)
    else:
        draft.files[path] = text
