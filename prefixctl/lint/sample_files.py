"""Sampling over files: every Jinja2 template in them is rendered and compared with what lint says.

Nothing else is rendered: strings in source code, and texts with other placeholders, get their
values in ways that only their application knows; chat templates have `prefixctl template`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from jinja2 import meta

from prefixctl.core.findings import Location
from prefixctl.errors import InputError
from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.state import Loader
from prefixctl.lint.evaluate.syntax import parse
from prefixctl.lint.find import Found
from prefixctl.lint.readers.governed import BrokenPromptError
from prefixctl.lint.run import Setup, documents_of
from prefixctl.lint.sample import (
    CLOCKS,
    Agreement,
    Encode,
    Sample,
    Sampling,
    generate_samplings,
    sample_template,
)
from prefixctl.lint.source import UnreadableError
from prefixctl.prompts.sandbox import Sandbox
from prefixctl.yamlfile import load_value, read_bytes

MAX_INCLUDED = 50
MAX_SETS = 50
_LEAST_SETS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSample:
    """What sampling says of one template.

    Attributes:
        location: Where it begins.
        sample: What the renders show.
        match: The file from the configuration's folder, as ``lint.paths`` names it.
    """

    location: Location
    sample: Sample
    match: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReport:
    """What sampling says of all files.

    Attributes:
        samples: One for each template, in the order of the files.
        skipped: Files that hold none, with the reason.
        unreadable: Files that could not be read, with the reason.
        exact: Whether tokens were counted.
    """

    samples: tuple[FileSample, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False

    @property
    def none_rendered(self) -> bool:
        """Whether not one template could be rendered, so that nothing was compared."""
        return self.count(Agreement.FAILED) == len(self.samples)

    def count(self, agreement: Agreement) -> int:
        """How many templates agree in that way."""
        return sum(s.sample.agreement is agreement for s in self.samples)


def sample_files(
    files: Sequence[Found],
    setup: Setup,
    *,
    values: Sequence[Mapping[str, Any]] = (),
    encode: Encode | None = None,
) -> SampleReport:
    """Sample every template in files.

    Args:
        files: The files.
        setup: As for lint.
        values: Sets of values, at least two, that go before the generated ones; all are generated
            if there are none.
        encode: Token ids of a text.

    Raises:
        PrefixctlError: If the sandbox cannot be started.
    """
    samples: list[FileSample] = []
    skipped: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    with Sandbox() as sandbox:
        for file in files:
            path = str(file.path)
            try:
                documents = documents_of(file, setup) or []
                made = [
                    FileSample(
                        location=_place(block),
                        sample=_sample(document, block, values, encode, sandbox),
                        match=_from(setup.root, block),
                    )
                    for document in documents
                    for block in _templates(document)
                ]
            except (UnreadableError, BrokenPromptError) as exc:
                cause = exc.cause if isinstance(exc, BrokenPromptError) else exc
                unreadable[path] = cause.message
                continue
            samples += made
            if not made and (documents or file.named):
                skipped[path] = _why(documents)
    return SampleReport(
        samples=tuple(samples), skipped=skipped, unreadable=unreadable, exact=encode is not None
    )


def load_values(path: Path) -> tuple[dict[str, Any], ...]:
    """Sets of values from a YAML or JSON file: a list of at least two mappings.

    Raises:
        InputError: If it cannot be read or is something else.
    """
    hint = (
        "a list of at least two sets, each a mapping of variable to value: [{user: a}, {user: b}]"
    )
    value = load_value(read_bytes(path), str(path))
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise InputError("no list of mappings", path=str(path), line=1, hint=hint)
    if not _LEAST_SETS <= len(value) <= MAX_SETS:
        message = f"{len(value)} sets of values; {_LEAST_SETS} to {MAX_SETS} are needed"
        raise InputError(message, path=str(path), line=1, hint=hint)
    try:
        return tuple(json.loads(json.dumps(v, default=_plain)) for v in value)
    except (TypeError, ValueError) as exc:
        raise InputError(f"a value that cannot be rendered: {exc}", path=str(path)) from exc


def _plain(value: object) -> str:
    """YAML reads dates of its own accord; in a prompt they are text."""
    if isinstance(value, date | datetime):
        return str(value.isoformat())
    raise TypeError(f"{type(value).__name__} {value!r}")


def _templates(document: Document) -> Iterator[Block]:
    if not document.chat:
        yield from (b for b in document.blocks if b.syntax is Syntax.JINJA and b.template)


def _sample(
    document: Document,
    block: Block,
    values: Sequence[Mapping[str, Any]],
    encode: Encode | None,
    sandbox: Sandbox,
) -> Sample:
    files = dict(_included(block.text, document.loader))
    parameters = document.parameters
    samplings = None
    if values:
        base = generate_samplings(block.text, parameters=parameters, files=files)
        samplings = [
            Sampling(
                values={**base[i % len(base)].values, **document.constants, **given},
                now=CLOCKS[i % len(CLOCKS)],
                seed=i,
            )
            for i, given in enumerate(values)
        ]
    return sample_template(
        block.text,
        samplings=samplings,
        parameters=parameters,
        files=files,
        encode=encode,
        sandbox=sandbox,
    )


def _included(text: str, loader: Loader) -> Iterator[tuple[str, str]]:
    """The templates that one includes, imports or extends, at any depth, by name."""
    pending, seen = [text], set[str]()
    while pending:
        for name in meta.find_referenced_templates(parse(pending.pop()).tree):
            if name is None or name in seen or len(seen) >= MAX_INCLUDED:
                continue
            seen.add(name)
            found = loader(name)
            if found is not None:
                pending.append(found)
                yield name, found


def _place(block: Block) -> Location:
    line, column = block.origin.position(block.text, 0)
    return Location(path=block.origin.source.path, line=line, column=column)


def _from(root: Path, block: Block) -> str:
    """A template's file as a path from the configuration's folder, where it is in there."""
    path = Path(block.origin.source.path)
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.as_posix()


def _why(documents: Sequence[Document]) -> str:
    if not documents:
        return "holds no prompt"
    if any(d.chat for d in documents):
        return "a chat template: `prefixctl template` renders it with conversations"
    kinds = ", ".join(dict.fromkeys(d.format for d in documents))
    return f"no Jinja2 template ({kinds})"
