"""Launches in Dockerfiles: the ENTRYPOINT and CMD of each stage, with its ENV."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prefixctl.sources.settings.launch import Launch, Variable
from prefixctl.sources.settings.script import Host, as_known, container_launches, variable
from prefixctl.sources.settings.shell import commands
from prefixctl.sources.settings.text import SourceFile, Text

_INSTRUCTION = re.compile(r"[ \t]*(?P<name>[A-Za-z]+)[ \t]+")
_CONTINUED = re.compile(r"\\[ \t]*$")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_LINES_MAX = 20_000


@dataclass(slots=True, kw_only=True)
class _Stage:
    name: str
    image: str
    environment: tuple[Variable, ...] = ()
    entrypoint: tuple[Text, ...] = ()
    command: tuple[Text, ...] = ()


def dockerfile_launches(file: SourceFile) -> Iterator[Launch]:
    """What the stages of a Dockerfile start. A stage built on another one inherits from it."""
    stages: list[_Stage] = []
    for name, body in _instructions(file):
        if name == "FROM":
            stages.append(_stage(body, stages))
        elif stages:
            _apply(stages[-1], name, body, file)
    for stage in stages:
        words = (*stage.entrypoint, *stage.command)
        host = Host(
            name=stage.name,
            environment=stage.environment,
            environment_open=True,
            image=stage.image,
            known=as_known(stage.environment, words[0]) if words else {},
        )
        yield from container_launches(words, file, host)


def _stage(body: Text, stages: list[_Stage]) -> _Stage:
    words = [w.text for w in next(commands(body), []) if not w.text.startswith("--")]
    image = words[0] if words else ""
    name = words[2] if len(words) > 2 and words[1].lower() == "as" else f"stage {len(stages) + 1}"  # noqa: PLR2004
    base = next((s for s in stages if s.name == image), None)
    if base is None:
        return _Stage(name=name, image=image)
    return _Stage(
        name=name,
        image=base.image,
        environment=base.environment,
        entrypoint=base.entrypoint,
        command=base.command,
    )


def _apply(stage: _Stage, name: str, body: Text, file: SourceFile) -> None:
    if name == "ENV":
        stage.environment = (*stage.environment, *_variables(body, file))
    elif name == "ENTRYPOINT":
        stage.entrypoint, stage.command = _words(body), ()
    elif name == "CMD":
        stage.command = _words(body)


def _variables(body: Text, file: SourceFile) -> Iterator[Variable]:
    words = next(commands(body), [])
    if words and "=" not in words[0].text:
        value = words[1] if len(words) > 1 else None
        known = value is not None and not value.expands
        yield Variable(
            name=words[0].text,
            value=value.text if value is not None and known else None,
            location=file.locate(words[0].start),
        )
        return
    yield from (v for w in words if (v := variable(w, file)) is not None)


def _words(body: Text) -> tuple[Text, ...]:
    """The words of the exec form (a JSON list), or of the shell form as ``sh -c`` gets it."""
    if body.text.lstrip().startswith("["):
        return tuple(_string(body, m) for m in _STRING.finditer(body.text))
    words = list(commands(body))
    if len(words) == 1:
        return tuple(words[0])
    start = body.start
    option = Text(text="-c", offsets=[start] * 3)
    return (Text(text="sh", offsets=[start] * 3), option, body)


def _string(body: Text, match: re.Match[str]) -> Text:
    inner = body.cut(match.start(1), match.end(1))
    if "\\" not in inner.text:
        return Text(text=inner.text, offsets=inner.offsets, quoted=True, expands="$" in inner.text)
    plain = inner.with_text(_ESCAPE.sub(lambda m: m[1], inner.text))
    return Text(text=plain.text, offsets=plain.offsets, quoted=True, expands="$" in plain.text)


def _instructions(file: SourceFile) -> Iterator[tuple[str, Text]]:
    """Instruction names with their bodies, continued lines and comments between resolved."""
    whole = file.whole()
    name, characters, offsets = "", [""], [0]
    for number, start in enumerate(file.starts[:_LINES_MAX], 1):
        line = file.line(number)
        if line.lstrip().startswith("#") or (name and not line.strip()):
            continue
        begin = 0
        if not name:
            match = _INSTRUCTION.match(line)
            if not match:
                continue
            name, begin, characters, offsets = match["name"].upper(), match.end(), [], []
        continued = _CONTINUED.search(line)
        end = continued.start() if continued else len(line)
        characters.append(line[begin:end] + " ")
        offsets += whole.offsets[start + begin : start + end]
        offsets.append(start + end)
        if not continued:
            yield name, Text(text="".join(characters), offsets=[*offsets, start + end])
            name = ""
    if name:
        yield name, Text(text="".join(characters), offsets=[*offsets, len(file.text)])
