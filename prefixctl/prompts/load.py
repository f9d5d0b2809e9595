"""Governed prompts from a folder, or from the bytes that a version stored."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

import yaml
from jinja2 import Environment, TemplateSyntaxError, meta, nodes, pass_context
from jinja2.runtime import Context
from pydantic import Field, field_validator

from prefixctl.config import Name, Scope, valid_name
from prefixctl.core.prompt import (
    DEFAULT_ROLES,
    PROMPT_FILE,
    Parameter,
    Prompt,
    Section,
    SectionKind,
    Volatility,
    is_template,
)
from prefixctl.errors import NothingToDoError, PromptError
from prefixctl.ids import PromptName
from prefixctl.sources.files import Folder, walk
from prefixctl.yamlfile import (
    StrictModel,
    did_you_mean,
    is_there,
    line_of,
    load_model,
    read_bytes,
    utf8_text,
)

MAX_FILE_BYTES = 32 * 1024 * 1024
"""A prompt file above this is a mistake: no model takes that many tokens."""


class ParameterModel(StrictModel):
    """One entry of ``parameters``."""

    scope: Scope = Field(description="How often the value changes.")
    value: str | None = Field(default=None, description="The value of a constant or version.")
    examples: tuple[str, ...] = Field(default=(), description="Values to render with.")
    description: str = Field(default="", description="What it is, for people.")


class SectionModel(StrictModel):
    """One entry of ``sections``."""

    kind: SectionKind = Field(description="The type of the section.")
    file: str = Field(description="Source, relative to the prompt folder.")
    role: str | None = Field(default=None, description="Chat role, if not the kind's own.")

    @field_validator("file")
    @classmethod
    def _inside(cls, value: str) -> str:
        if not is_inside(value):
            raise ValueError(f"'{value}' leaves the prompt folder")
        return posixpath.normpath(value)


class PromptModel(StrictModel):
    """The whole of prompt.yaml."""

    name: Name | None = Field(default=None, description="The folder's name if omitted.")
    description: str = Field(default="", description="What it is for.")
    owner: str = Field(default="", description="Who answers for it.")
    sections: tuple[SectionModel, ...] = Field(min_length=1, description="In prompt order.")
    parameters: dict[str, ParameterModel] = Field(default_factory=dict, description="By name.")


def is_inside(file: str) -> bool:
    """Whether a path stays in the prompt folder when it is resolved."""
    path = posixpath.normpath(file.replace("\\", "/"))
    return bool(file) and not path.startswith(("/", "../")) and path != ".." and ":" not in path


def holds_prompt(folder: Folder) -> bool:
    """Whether a folder is a governed prompt's; a prompt holds no other prompts."""
    return folder.has(PROMPT_FILE)


def find_prompts(folder: Path) -> list[Path]:
    """All governed prompt folders below a folder (or itself), sorted.

    Raises:
        NothingToDoError: If the folder is missing or holds none.
        PromptError: If a folder cannot be read.
    """
    if not is_there(folder):
        raise NothingToDoError(
            "no such folder", path=str(folder), hint="set `prompts:` in prefixctl.yaml"
        )
    folders = walk(folder, whole=holds_prompt, error=PromptError)
    found = sorted(f.path for f in folders if holds_prompt(f))
    if not found:
        raise NothingToDoError(
            "holds no governed prompt", path=str(folder), hint=f"a prompt folder has {PROMPT_FILE}"
        )
    return found


def load_prompt(folder: Path, overlay: Mapping[str, bytes] | None = None) -> Prompt:
    """Read a governed prompt with all files that its sections use or include.

    Args:
        folder: Its folder.
        overlay: Bytes by relative path that go before those on the disk: what an editor holds.

    Raises:
        PromptError: If a file is missing or wrong, with its line.
    """
    root = folder.resolve()

    def read(file: str, line: int | None) -> bytes:
        if overlay is not None and file in overlay:
            return overlay[file]
        path = folder / file
        named = f"named by {folder / PROMPT_FILE}:{line}" if line else ""
        try:
            inside = path.resolve().is_relative_to(root)
        except (OSError, RuntimeError, ValueError) as exc:
            raise PromptError(f"no path: {exc}", path=str(path), hint=named or None) from exc
        if not inside:
            raise PromptError("leads out of the prompt folder", path=str(path), hint=named or None)
        return read_bytes(path, PromptError, hint=named, limit=MAX_FILE_BYTES)

    top = read(PROMPT_FILE, None)
    model, node = load_model(PromptModel, top, str(folder / PROMPT_FILE), PromptError)
    files = {PROMPT_FILE: top}
    pending = [(s.file, line_of(node, ("sections", i))) for i, s in enumerate(model.sections)]
    while pending:
        file, line = pending.pop()
        if file not in files:
            files[file] = read(file, line)
            if is_template(file):
                path = str(folder / file)
                tree = parse_template(decode(files[file], path), path)
                pending += [(f, None) for f in _included(tree, path)]
    return parse_prompt(files, name=PromptName(folder.absolute().name), origin=str(folder))


def parse_prompt(files: Mapping[str, bytes], *, name: PromptName, origin: str) -> Prompt:
    """Build a prompt from the bytes of its files.

    Args:
        files: Relative path to bytes, with prompt.yaml.
        name: The name, unless prompt.yaml gives another.
        origin: Where the bytes came from, for messages.

    Raises:
        PromptError: If prompt.yaml does not fit, a section's file is missing, a template cannot
            be parsed, or a parameter is undefined.
    """
    path = f"{origin}/{PROMPT_FILE}"
    model, node = load_model(PromptModel, files[PROMPT_FILE], path, PromptError)
    parameters = {
        key: Parameter(name=key, scope=p.scope, value=p.value, examples=p.examples)
        for key, p in model.parameters.items()
    }
    for key, p in parameters.items():
        fixed = p.scope <= Volatility.VERSION
        if fixed and p.value is None:
            line = line_of(node, ("parameters", key))
            raise PromptError(f"'{key}' needs a value: its scope is {p.scope.label}", path=path,
                              line=line)  # fmt: skip
        if not fixed and p.value is not None:
            raise PromptError(
                f"'{key}' has a value although its scope is {p.scope.label}",
                path=path,
                line=line_of(node, ("parameters", key)),
                hint="give `examples:`, or the scope version",
            )
    sections = tuple(_section(i, s, node) for i, s in enumerate(model.sections))
    for section in sections:
        if section.file not in files:
            raise PromptError(f"'{section.file}' is missing", path=path, line=section.line)
        if is_template(section.file):
            _check_template(files, section.file, parameters, origin)
        else:
            decode(files[section.file], f"{origin}/{section.file}")
    return Prompt(
        name=PromptName(_checked_name(model.name or name, path)),
        sections=sections,
        parameters=parameters,
        files=dict(files),
        origin=origin,
    )


def _checked_name(name: str, path: str) -> str:
    try:
        return valid_name(name)
    except ValueError as exc:
        raise PromptError(
            f"the folder's name is no prompt name: {exc}",
            path=path,
            hint="rename it, or give `name:`",
        ) from exc


def decode(data: bytes, path: str) -> str:
    """The text of a prompt file: UTF-8, a leading byte order mark left out, line ends kept.

    Raises:
        PromptError: For other bytes, with the line.
    """
    return utf8_text(data, path, PromptError)


def _section(index: int, model: SectionModel, node: yaml.Node | None) -> Section:
    return Section(
        kind=model.kind,
        file=model.file,
        role=model.role or DEFAULT_ROLES.get(model.kind),
        line=line_of(node, ("sections", index)) or 1,
    )


def _undeclared(tree: nodes.Template) -> set[str]:
    """The names that a template takes from its values.

    As jinja2's own function, but for its optimizer and for a finalizer that needs no context:
    these would compute ``"a" * 10**9`` here, where nothing bounds it.
    """
    assert tree.environment is not None  # noqa: S101 - set by Environment.parse
    generator = meta.TrackingCodeGenerator(tree.environment)
    generator.optimizer = None
    generator.visit(tree)
    return generator.undeclared_identifiers


@pass_context
def _as_it_is(_: Context, value: object) -> object:
    return value


def parse_template(text: str, path: str) -> nodes.Template:
    """The syntax tree of a Jinja2 template.

    Raises:
        PromptError: With the line of the first thing that does not parse.
    """
    try:
        environment = Environment(autoescape=False, finalize=_as_it_is)  # noqa: S701 - no HTML
        tree = environment.parse(text)
        _undeclared(tree)  # generates code: unknown filters and tests show here
    except TemplateSyntaxError as exc:
        raise PromptError(f"broken template: {exc.message}", path=path, line=exc.lineno) from exc
    except RecursionError as exc:
        raise PromptError("broken template: nested too deeply", path=path) from exc
    except ValueError as exc:
        raise PromptError(f"broken template: {exc}", path=path) from exc
    return tree


def _included(tree: nodes.Template, path: str) -> list[str]:
    """The files that a template includes, imports or extends, but for those that may be missing."""
    optional = {
        name.value
        for n in tree.find_all(nodes.Include)
        if n.ignore_missing or not isinstance(n.template, nodes.Const)
        for name in (n.template, *n.template.find_all(nodes.Const))
        if isinstance(name, nodes.Const)
    }
    files = []
    for file in meta.find_referenced_templates(tree):
        if file is None:
            raise PromptError("includes a file by a computed name", path=path, hint="name it")
        if not is_inside(file):
            raise PromptError(f"includes '{file}', which leaves the prompt folder", path=path)
        if file not in optional:
            files.append(posixpath.normpath(file))
    return files


def _check_template(
    files: Mapping[str, bytes], file: str, parameters: Mapping[str, Parameter], origin: str
) -> None:
    """Refuse undefined parameters in a template and in all that it includes.

    A name that any of these templates binds (a loop variable, say) may be used in all of them.
    """
    trees: dict[str, nodes.Template] = {}
    pending = [file]
    while pending:
        current = pending.pop()
        path = f"{origin}/{current}"
        if current in trees:
            continue
        if current not in files:
            raise PromptError("included, but missing", path=path)
        trees[current] = parse_template(decode(files[current], path), path)
        pending += _included(trees[current], path)
    known = {*parameters, *(name for tree in trees.values() for name in _bound(tree))}
    for current, tree in trees.items():
        for name in sorted(_undeclared(tree) - known):
            uses = [n.lineno for n in tree.find_all(nodes.Name) if n.name == name]
            raise PromptError(
                f"undefined parameter '{name}'",
                path=f"{origin}/{current}",
                line=min(uses, default=None),
                hint=did_you_mean(name, list(parameters))
                or f"declare it under `parameters:` in {origin}/{PROMPT_FILE}",
            )


def _bound(tree: nodes.Template) -> set[str]:
    return {n.name for n in tree.find_all(nodes.Name) if n.ctx in {"store", "param"}}
