"""Whether a candidate can be governed as it is proposed, and with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jinja2 import meta, nodes

from prefixctl.adopt.model import Candidate
from prefixctl.core.prompt import is_template
from prefixctl.errors import InputError, PromptError
from prefixctl.prompts.load import is_inside, parse_template
from prefixctl.sources.files import real_path
from prefixctl.yamlfile import read_bytes, utf8_text

MAX_INCLUDED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A candidate that can be governed.

    Attributes:
        parameters: Names, in the order of the alphabet.
        included: Included files by name, relative to the source's folder.
    """

    parameters: tuple[str, ...]
    included: Mapping[str, str]


def check_candidate(candidate: Candidate, root: Path) -> Checked:
    """The parameters and included files of a candidate.

    Raises:
        PromptError: If a template cannot be parsed, includes what is not there, or calls what only
            its application has; the message says which.
    """
    folder = root / PurePosixPath(candidate.source).parent
    pending = [(p.file, p.text) for p in candidate.pieces if is_template(p.file)]
    included: dict[str, str] = {}
    free: set[str] = set()
    bound: set[str] = set()
    while pending:
        file, text = pending.pop()
        tree = parse_template(text, candidate.source)
        names = meta.find_undeclared_variables(tree)
        _refuse_calls(tree, names, candidate.source)
        free |= names
        bound |= {n.name for n in tree.find_all(nodes.Name) if n.ctx in {"store", "param"}}
        for name in meta.find_referenced_templates(tree):
            if name is None or not is_inside(name):
                raise PromptError("includes a file outside its folder", path=file)
            if name not in included:
                included[name] = _included(folder, name, len(included))
                pending.append((name, included[name]))
    return Checked(parameters=tuple(sorted(free - bound)), included=included)


def _included(folder: Path, name: str, count: int) -> str:
    path = folder / name
    if count >= MAX_INCLUDED or not real_path(path).is_relative_to(real_path(folder)):
        raise PromptError(f"includes '{name}', which leaves its folder", path=str(path))
    try:
        return utf8_text(read_bytes(path), str(path))
    except InputError as exc:
        raise PromptError(f"includes '{name}', which cannot be read", path=str(path)) from exc


def _refuse_calls(tree: nodes.Template, free: set[str], path: str) -> None:
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name in free:
            raise PromptError(f"calls {call.node.name}(), which its application gives", path=path)
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.iter, nodes.Name) and loop.iter.name in free:
            raise PromptError(
                f"loops over `{loop.iter.name}`: parameters of a governed prompt are texts",
                path=path,
            )
    owners: list[nodes.Node] = [r.node for r in tree.find_all(nodes.Getattr)]
    owners += [r.node for r in tree.find_all(nodes.Getitem)]
    for owner in owners:
        if isinstance(owner, nodes.Name) and owner.name in free:
            raise PromptError(
                f"reads a field of `{owner.name}`: parameters of a governed prompt are texts",
                path=path,
            )
