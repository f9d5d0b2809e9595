"""Launches in shell scripts and command lines, ``docker run`` and ``sh -c`` included.

Variables are replaced where the script gives them once, as plain text. Anything else stays open.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prefixctl.sources.settings.command import (
    Start,
    expand,
    find_start,
    image_engine,
    inner_script,
    parse_arguments,
    starts_by_itself,
)
from prefixctl.sources.settings.launch import Launch, Variable
from prefixctl.sources.settings.shell import commands
from prefixctl.sources.settings.text import SourceFile, Text

MAX_DEPTH = 3
"""Of scripts inside scripts."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?=)(\(?)")
_CONTAINER_TOOLS = frozenset(["docker", "podman", "nerdctl"])
_NO_IMAGE_BEHIND = frozenset(
    ["--name", "-h", "--hostname", "--network", "--net", "-v", "--volume", "-l", "--label", "-e",
     "--env", "--env-file", "-w", "--workdir", "--entrypoint", "--mount", "-u", "--user"]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What surrounds a command.

    Attributes:
        name: For the launch.
        environment: As far as the file gives it.
        environment_open: Whether there may be more.
        image: The container image.
        replicas: How many run it.
        depth: Of scripts inside scripts.
        known: Values of shell variables.
    """

    name: str = ""
    environment: tuple[Variable, ...] = ()
    environment_open: bool = False
    image: str | None = None
    replicas: int = 1
    depth: int = 0
    known: Mapping[str, Sequence[Text]] = field(default_factory=dict)


def script_launches(text: Text, file: SourceFile, host: Host) -> Iterator[Launch]:
    """The launches of a script."""
    found = [c for c in commands(text) if c]
    known = {**host.known, **_constants(found)}
    exported: list[Variable] = []
    for words in found:
        body, own = _assignments(words, file)
        if not body:
            continue
        if body[0].text == "export":
            exported += _assignments(body[1:], file)[1]
            continue
        environment = (*host.environment, *exported, *own)
        inside = replace(host, environment=environment, environment_open=True, known=known)
        yield from command_launches(body, file, inside)


def command_launches(words: Sequence[Text], file: SourceFile, host: Host) -> Iterator[Launch]:
    """The launches of one command, given as its words."""
    words = list(expand(words, host.known))
    container = _container(words, file, host)
    if container is not None:
        rest, inside = container
        yield from container_launches(rest, file, inside)
        return
    start = find_start(words)
    if start is not None:
        yield make_launch(start, file, host)
        return
    script = inner_script(words)
    if script is not None and host.depth < MAX_DEPTH:
        yield from script_launches(script, file, replace(host, depth=host.depth + 1))


def container_launches(words: Sequence[Text], file: SourceFile, host: Host) -> Iterator[Launch]:
    """The launches of a container whose command is that, which may be arguments only."""
    found = list(command_launches(words, file, host))
    if found or not words or not starts_by_itself(host.image):
        yield from found
    elif words[0].text.startswith("-") or len(words) == 1 or words[1].text.startswith("-"):
        start = Start(engine=image_engine(host.image), word=words[0], arguments=tuple(words))
        yield make_launch(start, file, host)


def make_launch(start: Start, file: SourceFile, host: Host) -> Launch:
    """A launch from a start and what surrounds it."""
    parsed = parse_arguments(list(expand(start.arguments, host.known)), file)
    place = file.locate(start.word.start)
    return Launch(
        engine=start.engine,
        name=host.name or f"line {place.line}",
        location=place,
        flags=parsed.flags,
        environment=host.environment,
        image=host.image,
        replicas=host.replicas,
        is_open=parsed.is_open,
        environment_open=host.environment_open,
        model=parsed.model,
    )


def as_known(environment: Sequence[Variable], at: Text) -> dict[str, Sequence[Text]]:
    """Environment variables as text that `expand` can put in place of their names."""
    return {v.name: [at.with_text(v.value)] for v in environment if v.value is not None}


def variable(text: Text, file: SourceFile) -> Variable | None:
    """``NAME=value`` as a variable; a name alone has no known value."""
    name, equals, _ = text.text.partition("=")
    if not name.isidentifier():
        return None
    value = text.cut(len(name) + 1) if equals else None
    known = value is not None and not value.expands
    return Variable(
        name=name,
        value=value.text if value is not None and known else None,
        location=file.locate(text.start),
    )


def _assignments(words: Sequence[Text], file: SourceFile) -> tuple[list[Text], list[Variable]]:
    """The words behind the leading assignments, and those."""
    made: list[Variable] = []
    for i, word in enumerate(words):
        match = _ASSIGNMENT.match(word.text)
        if not match or match[3]:
            return ([] if match else list(words[i:])), made
        assigned = variable(word, file)
        if assigned is not None:
            made.append(assigned)
    return [], made


def _constants(found: Sequence[Sequence[Text]]) -> dict[str, Sequence[Text]]:
    """Variables that the script assigns once, as plain text."""
    values: dict[str, Sequence[Text]] = {}
    times: Counter[str] = Counter()
    for words in found:
        first = 1 if words[0].text in {"export", "local", "readonly", "declare"} else 0
        for i in range(first, len(words)):
            match = _ASSIGNMENT.match(words[i].text)
            if not match:
                break
            times[match[1]] += 1 if match[2] == "=" else 2
            rest = words[i + 1 :] if match[3] else [words[i].cut(match.end())]
            values[match[1]] = rest
    return {
        name: value
        for name, value in values.items()
        if times[name] == 1 and not any(v.expands for v in value)
    }


def _container(
    words: Sequence[Text], file: SourceFile, host: Host
) -> tuple[Sequence[Text], Host] | None:
    """The command and surroundings of ``docker run``."""
    plain = [w.text for w in words]
    tool = next((i for i, w in enumerate(plain) if w.rpartition("/")[2] in _CONTAINER_TOOLS), None)
    if tool is None or not {"run", "create"} & set(plain[tool + 1 : tool + 3]):
        return None
    environment = []
    for i in range(tool + 1, len(words)):
        if plain[i - 1] in {"-e", "--env"}:
            environment.append(variable(words[i], file))
        elif plain[i].startswith("--env="):
            environment.append(variable(words[i].cut(len("--env=")), file))
        elif plain[i - 1] not in _NO_IMAGE_BEHIND and image_engine(plain[i]).value != "unknown":
            inside = Host(
                name=host.name,
                environment=tuple(v for v in environment if v is not None),
                environment_open="--env-file" in plain,
                image=plain[i],
                depth=host.depth,
                known=host.known,
            )
            return words[i + 1 :], inside
    return words[len(words) :], host
