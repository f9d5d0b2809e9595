"""A registered prefix that a request names by its key, rendered for the client's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from jinja2 import nodes

from prefixctl.config import valid_name
from prefixctl.core.blocks import expected_hit_tokens
from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import (
    GOVERNED_KINDS,
    Parameter,
    Prompt,
    Section,
    SectionKind,
    Volatility,
    is_template,
)
from prefixctl.errors import PrefixctlError, PromptError
from prefixctl.gateway.refusal import Reason, RefusedError
from prefixctl.prompts.load import decode, parse_template
from prefixctl.prompts.render import JOINT, render
from prefixctl.yamlfile import did_you_mean

KEY_FIELD = "prefix_key"
PARAMETERS_FIELD = "prefix_parameters"
MOST_VALUE_CHARS = 1_000_000
MOST_NAME_CHARS = 200
"""Of what a client calls a prompt or a parameter: to look for names like it takes time, and an
error repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a client names: the live version of a prompt, or a version by its number."""

    name: str
    version: int | None = None


def parse_reference(value: object) -> Reference:
    """The reference in a `prefix_key`: ``name`` or ``name@3``.

    Raises:
        RefusedError: 422 if it is neither.
    """
    name, at, number = value.partition("@") if isinstance(value, str) else ("", "", "")
    try:
        valid_name(name[: MOST_NAME_CHARS + 1])
    except ValueError:
        name = ""
    good = number.isascii() and number.isdecimal() and len(number) < 10 if at else True  # noqa: PLR2004
    if not 0 < len(name) <= MOST_NAME_CHARS or not good:
        raise RefusedError(
            422,
            Reason.PREFIX_PARAMETERS,
            f"`{KEY_FIELD}` is the name of a prompt, or name@version with a number",
            param=KEY_FIELD,
        )
    return Reference(name=name, version=int(number) if at else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What stands in front of the client's own words.

    Attributes:
        messages: OpenAI-style messages.
        tools: OpenAI-style tool schemas, or None.
        joins: The role of a first message of the client that belongs to the last of these
            messages, as the prompt's own next section would; None if it stands for itself.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    joins: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """A published version on this server's target.

    Attributes:
        prompt: Its text.
        version: Its number.
        id: Its identity: a number can be used again after its version was removed.
        shared_tokens: S; None if the version was not made for this target.
        block_tokens: The cache unit.
        deployment: Values of deployment parameters.
    """

    prompt: Prompt
    version: int
    id: str
    shared_tokens: int | None
    block_tokens: int
    deployment: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.prompt.name}@{self.version}"

    def expected_hit_tokens(self, prompt_tokens: int) -> int:
        """What a request of that many tokens can get; 0 if the prefix is not measured here."""
        shared = min(self.shared_tokens or 0, prompt_tokens)
        return expected_hit_tokens(shared, prompt_tokens, self.block_tokens)

    @cached_property
    def leading(self) -> tuple[Section, ...]:
        """The sections ahead of the client's words: tools, and all before the first own section."""
        found: list[Section] = []
        ended = False
        for section in self.prompt.sections:
            ended = ended or section.kind not in GOVERNED_KINDS
            if not ended or section.kind is SectionKind.TOOLS:
                found.append(section)
        return tuple(found)

    @cached_property
    def interleaved(self) -> bool:
        """Whether a governed section stands behind one of the client's."""
        behind = [s for s in self.prompt.sections if s not in self.leading]
        return any(s.kind in GOVERNED_KINDS for s in behind)

    @cached_property
    def leading_parameters(self) -> frozenset[str]:
        """The parameters that the leading sections print."""
        files = {s.file for s in self.leading if is_template(s.file)}
        if files:
            files |= {f for f in self.prompt.included if is_template(f)}
        return _names_in(self.prompt, files) & set(self.prompt.parameters)

    @cached_property
    def joins(self) -> str | None:
        """See `Expansion.joins`."""
        text = [s for s in self.prompt.sections if s.kind is not SectionKind.TOOLS]
        number = sum(s in self.leading for s in text)
        if not 0 < number < len(text):
            return None
        last, following = text[number - 1].role, text[number].role
        return last if last is not None and last == following else None

    def expand(self, values: object, *, whole: bool) -> Expansion:
        """Render the leading sections, or all of them where the client sends no words.

        Args:
            values: The client's `prefix_parameters`.
            whole: Whether the client's sections are rendered as well.

        Raises:
            RefusedError: 422 for values that are missing, too many or no text.
        """
        if not whole and self.interleaved:
            raise RefusedError(
                422,
                Reason.PREFIX_PARAMETERS,
                f"{self.label} has governed sections behind the client's: send no messages of "
                f"your own, and all values in `{PARAMETERS_FIELD}`",
                param="messages",
            )
        needed = set(self.prompt.parameters) if whole else self.leading_parameters
        sections = self.prompt.sections if whole else self.leading
        rendered = self._render(sections, self._checked(values, needed))
        joins = None if whole else self.joins
        return Expansion(messages=rendered.messages, tools=rendered.tools, joins=joins)

    def complete(self, leading: Expansion, values: object) -> Expansion:
        """The whole prompt, from its leading sections as they were rendered for these values.

        Args:
            leading: From `expand`; the prompt is not interleaved.
            values: The client's `prefix_parameters`, of all sections.

        Raises:
            RefusedError: As `expand`.
        """
        known = self._checked(values, set(self.prompt.parameters))
        behind = tuple(s for s in self.prompt.sections if s not in self.leading)
        own = list(self._render(behind, known).messages)
        messages = list(leading.messages)
        if own and leading.joins is not None:
            first = own.pop(0)
            joined = messages[-1]["content"] + JOINT + first["content"]
            messages[-1] = {**messages[-1], "content": joined}
        return Expansion(messages=(*messages, *own), tools=leading.tools)

    def leading_values(self, values: object) -> object:
        """Those of a client's values that the leading sections print."""
        if not isinstance(values, Mapping):
            return values
        return {n: v for n, v in values.items() if n in self.leading_parameters}

    def _render(self, sections: tuple[Section, ...], known: Mapping[str, str]) -> ChatRequest:
        parameters = {
            n: p for n, p in self.prompt.parameters.items() if n in known or p.value is not None
        }
        part = replace(self.prompt, sections=sections, parameters=parameters)
        try:
            return render(part, known)
        except PromptError as exc:
            raise RefusedError(
                422,
                Reason.PREFIX_PARAMETERS,
                f"{self.label}: {exc.message}",
                param=PARAMETERS_FIELD,
            ) from exc
        except PrefixctlError as exc:
            raise RefusedError(
                503, Reason.UNAVAILABLE, "prefixes cannot be rendered at the moment"
            ) from exc

    def _checked(self, values: object, needed: set[str] | frozenset[str]) -> dict[str, str]:
        """The values of the needed parameters that have none of their own."""
        given = {} if values is None else values
        if not isinstance(given, Mapping):
            raise _bad("it is no object")
        for name, value in given.items():
            self._check_value(name, value, needed)
        known = {n: v for n, v in self.deployment.items() if n in needed and self._is_fixed(n)}
        known |= given
        missing = sorted(n for n in needed if n not in known and not self._has_value(n))
        if missing:
            raise _bad(f"no value for {', '.join(missing)}")
        return known

    def _check_value(self, name: str, value: object, needed: set[str] | frozenset[str]) -> None:
        if len(name) > MOST_NAME_CHARS:
            raise _bad(f"a name has more than {MOST_NAME_CHARS} characters")
        open_names = [n for n in self.prompt.parameters if not self._is_fixed(n)]
        if name not in open_names:
            fixed = name in self.prompt.parameters
            hint = did_you_mean(name, open_names) or ""
            raise _bad(
                f"'{name}' has its value on the server" if fixed else f"no parameter '{name}'", hint
            )
        if name not in needed:
            raise _bad(f"'{name}' stands in a section that your own messages replace: leave it out")
        if not isinstance(value, str):
            raise _bad(f"'{name}' is no text")
        if len(value) > MOST_VALUE_CHARS:
            raise _bad(f"'{name}' is longer than {MOST_VALUE_CHARS:,} characters")

    def _has_value(self, name: str) -> bool:
        return self.prompt.parameters[name].value is not None

    def _is_fixed(self, name: str) -> bool:
        """Whether the value of a parameter is not the client's to choose."""
        parameter: Parameter = self.prompt.parameters[name]
        return parameter.scope <= Volatility.DEPLOYMENT


def _names_in(prompt: Prompt, files: set[str]) -> frozenset[str]:
    names: set[str] = set()
    for file in files:
        path = f"{prompt.origin}/{file}"
        tree = parse_template(decode(prompt.files[file], path), path)
        names |= {name.name for name in tree.find_all(nodes.Name)}
    return frozenset(names)


def _bad(what: str, hint: str = "") -> RefusedError:
    message = f"`{PARAMETERS_FIELD}`: {what}" + (f" ({hint})" if hint else "")
    return RefusedError(422, Reason.PREFIX_PARAMETERS, message, param=PARAMETERS_FIELD)
