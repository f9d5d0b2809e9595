"""What is found in a repository, and what is proposed for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from prefixctl.core.prompt import SectionKind, Volatility


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A guess how often a parameter changes, and why."""

    scope: Volatility
    reason: str = ""


GuessScope = Callable[[str], Scope]
"""From a parameter's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A section to be.

    Attributes:
        kind: Its type.
        file: Its file's name in the prompt folder.
        text: Its source.
        role: The chat role, if not the kind's own.
    """

    kind: SectionKind
    file: str
    text: str = field(repr=False)
    role: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A prompt that was found.

    Attributes:
        source: Its file, relative to the repository, with ``/``.
        key: Where in the file, for one of several.
        pieces: Its sections.
        as_it_is: Whether the file itself can be the section, byte for byte.
    """

    source: str
    key: str = ""
    pieces: tuple[Piece, ...]
    as_it_is: bool = False

    @property
    def origin(self) -> str:
        """File and key, as prompt.yaml names them."""
        return f"{self.source}#{self.key}" if self.key else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that looks like a prompt and is not adopted, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a repository holds.

    Attributes:
        candidates: Prompts, sorted by place.
        chat_templates: Chat templates of models: they belong to a target.
        left_out: What could not be taken.
        governed: Folders that hold a governed prompt already.
        names: Names of those prompts.
        adopted: Origins that their prompt.yaml files name.
    """

    candidates: tuple[Candidate, ...] = ()
    chat_templates: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    governed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    adopted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A file to write, relative to the repository."""

    path: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What `init` would write.

    Attributes:
        files: New files only.
        present: Files that are there already and stay as they are.
        prompts: Names of the prompts that are adopted now.
        baseline: Where lint's findings of the day go, unless a file is there.
        folder: The folder of all governed prompts.
        governed: How many prompts were governed before.
        left_out: What could not be taken.
        chat_templates: Chat templates of models.
    """

    files: tuple[PlannedFile, ...]
    present: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    baseline: str | None = None
    folder: str = "."
    governed: int = 0
    left_out: tuple[LeftOut, ...] = ()
    chat_templates: tuple[str, ...] = ()
