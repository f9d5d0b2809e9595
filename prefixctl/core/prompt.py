"""The governed prompt: typed sections, parameters with scopes, volatility."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from prefixctl.ids import Digest, PromptName


class Volatility(IntEnum):
    """How often a value changes, ordered by how much a shared prefix suffers from it.

    The order makes ``max`` the volatility of a combination of values.
    """

    CONSTANT = 0
    VERSION = 1
    DEPLOYMENT = 2
    TENANT = 3
    DAY = 4
    HOUR = 5
    USER = 6
    SESSION = 7
    MINUTE = 8
    REQUEST = 9
    SECOND = 10

    @property
    def label(self) -> str:
        """The word used in files and messages, for example ``"day"``."""
        return self.name.lower()

    @property
    def is_clock(self) -> bool:
        """Whether the value is read from a clock."""
        return self in {Volatility.DAY, Volatility.HOUR, Volatility.MINUTE, Volatility.SECOND}

    @property
    def is_dynamic(self) -> bool:
        """Whether the value can differ between two requests on one target.

        Tenant values count: a prefix that holds one is not shared between tenants.
        """
        return self > Volatility.DEPLOYMENT


class SectionKind(StrEnum):
    """The type of a section. The first four can be part of a governed prefix."""

    SYSTEM_PROMPT = "system_prompt"
    TOOLS = "tools"
    FEW_SHOT = "few_shot"
    DOCUMENT = "document"
    RETRIEVED = "retrieved"
    HISTORY = "history"
    USER = "user"


GOVERNED_KINDS = (
    SectionKind.SYSTEM_PROMPT,
    SectionKind.TOOLS,
    SectionKind.FEW_SHOT,
    SectionKind.DOCUMENT,
)

PROMPT_FILE = "prompt.yaml"
TEMPLATE_SUFFIXES = (".j2", ".jinja", ".jinja2")


def is_template(file: str) -> bool:
    """Whether a section's source is a Jinja2 template; anything else is literal."""
    return file.endswith(TEMPLATE_SUFFIXES)


DEFAULT_ROLES: Mapping[SectionKind, str] = {
    SectionKind.SYSTEM_PROMPT: "system",
    SectionKind.DOCUMENT: "system",
    SectionKind.RETRIEVED: "user",
    SectionKind.USER: "user",
}
"""The chat role of a text section. Tools and message lists have no role of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A named hole in a prompt.

    Attributes:
        name: The name used in the templates.
        scope: How often the value changes.
        value: The fixed value of a ``constant`` or ``version`` parameter, else None.
        examples: Values to render with where none is given.
    """

    name: str
    scope: Volatility
    value: str | None = None
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One typed part of a governed prompt.

    Attributes:
        kind: The type; part of the key material.
        file: The path of the source relative to the prompt folder, with ``/``.
        role: The chat role of a text section; None for tools and message lists.
        line: The line of ``prompt.yaml`` that declares it, 1-based.
    """

    kind: SectionKind
    file: str
    role: str | None
    line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A governed prompt with the exact bytes of all its files.

    Attributes:
        name: The folder's name unless ``prompt.yaml`` gives another.
        sections: In the order in which they reach the model.
        parameters: By name.
        files: Relative path to bytes, ``prompt.yaml`` included: all that a version stores.
        origin: Where it came from, for messages: a folder or ``name@version``.
    """

    name: PromptName
    sections: tuple[Section, ...]
    parameters: Mapping[str, Parameter]
    files: Mapping[str, bytes] = field(repr=False)
    origin: str = ""

    def section_digest(self, section: Section) -> Digest:
        """The digest of a section's source bytes."""
        return digest_of(self.files[section.file])

    @property
    def included(self) -> Mapping[str, bytes]:
        """The files that are no section of their own, but part of one by ``{% include %}``."""
        own = {s.file for s in self.sections} | {PROMPT_FILE}
        return {f: data for f, data in sorted(self.files.items()) if f not in own}

    def content_digest(self) -> Digest:
        """The digest of all that changes the text: sections, included files, parameters.

        A section's file name counts only in that it makes the source a template or not. The name
        of the prompt and the words that describe it are no part, so a rename changes nothing.
        """
        sections = [
            [s.kind.value, s.role, is_template(s.file), self.section_digest(s)]
            for s in self.sections
        ]
        included = [(f, digest_of(data)) for f, data in self.included.items()]
        parameters = sorted((p.name, p.scope.label, p.value) for p in self.parameters.values())
        return digest_of(canonical_json([sections, included, parameters]))


def digest_of(data: bytes) -> Digest:
    """``sha256:`` and the hex digest of ``data``."""
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def canonical_json(value: object) -> bytes:
    """One byte string for one value: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()
