"""From the words of a command to a launch: which engine, which flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prefixctl.sources.settings.launch import Engine, Flag
from prefixctl.sources.settings.text import SourceFile, Text

_MODULES = {
    "vllm.entrypoints.openai.api_server": Engine.VLLM,
    "vllm.entrypoints.api_server": Engine.VLLM,
    "vllm/entrypoints/openai/api_server.py": Engine.VLLM,
    "sglang.launch_server": Engine.SGLANG,
    "sglang/launch_server.py": Engine.SGLANG,
}
_PROGRAMS = {"vllm": Engine.VLLM, "sglang": Engine.SGLANG}
_NO_START = frozenset(
    ["echo", "printf", "pip", "pip3", "grep", "pgrep", "pkill", "killall", "curl", "cat", "which",
     "command", "test", "[", "[[", "git", "apt-get", "log", "logger", "sed", "awk"]
)  # fmt: skip
_IMAGE = re.compile(r"(?:^|/)[\w.-]*(vllm|sglang)[\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?(?:@[\w:]+)?$")
_IMAGE_CHARS = 512
_SWITCH = re.compile(r"--(?:enable|disable|no|trust|enforce|skip|use)-")
_NO_SWITCH = frozenset(["--no-repeat-ngram-size"])
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)(?:\[[@*]\])?\}|(\w+))")
_SHELL_OPTION = re.compile(r"-[a-z]*c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of an engine in the words of a command: its place and its arguments."""

    engine: Engine
    word: Text
    arguments: tuple[Text, ...]


def find_start(words: Sequence[Text]) -> Start | None:
    """The engine that a command starts; None if it starts none."""
    if not words or words[0].text.rpartition("/")[2] in _NO_START:
        return None
    for i, word in enumerate(words):
        engine = _MODULES.get(word.text) or next(
            (e for m, e in _MODULES.items() if word.text.endswith(f"/{m}")), None
        )
        rest = i + 1
        if engine is None and words[i + 1 : i + 2] and words[i + 1].text == "serve":
            engine = _PROGRAMS.get(word.text.rpartition("/")[2])
            rest = i + 2
        if engine is not None:
            return Start(engine=engine, word=word, arguments=tuple(words[rest:]))
    return None


def inner_script(words: Sequence[Text]) -> Text | None:
    """The script in ``sh -c "..."``, if there is one."""
    for option, word in pairwise(words):
        if _SHELL_OPTION.fullmatch(option.text) and any(c.isspace() for c in word.text):
            return word
    return None


def image_engine(image: str | None) -> Engine:
    """The engine that a container image holds, by its name."""
    found = _IMAGE.search(image) if image and len(image) <= _IMAGE_CHARS else None
    return Engine(found[1]) if found else Engine.UNKNOWN


def starts_by_itself(image: str | None) -> bool:
    """Whether the image's entry point is the server, so that its command holds arguments only."""
    return "vllm" in (image or "").rpartition("/")[2].partition(":")[0] and (
        image_engine(image) is Engine.VLLM
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The parsed arguments of a server. Attributes as of `Launch`."""

    flags: tuple[Flag, ...]
    is_open: bool
    model: str | None


def parse_arguments(words: Sequence[Text], file: SourceFile) -> Arguments:
    """Flags with their values. ``--a=b``, ``--a b`` and ``--a_b`` are understood."""
    flags: list[Flag] = []
    is_open = False
    model = None
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if word.text in {"--", "\\"} or not word.text:
            continue
        if not _is_flag(word):
            is_open = is_open or word.expands
            model = model or (None if word.expands or flags else word.text)
            continue
        name, equals, _ = word.text.partition("=")
        value = word.cut(len(name) + 1) if equals else None
        if value is None and i < len(words) and _takes(name, words[i]):
            value = words[i]
            i += 1
        flags.append(_flag(name, word, value, file))
        is_open = is_open or flags[-1].name == "--config"
    named = next(
        (f for f in reversed(flags) if f.name in {"--model", "--model-path"} and f.known), None
    )
    return Arguments(flags=tuple(flags), is_open=is_open, model=named.value if named else model)


def _flag(name: str, word: Text, value: Text | None, file: SourceFile) -> Flag:
    head, dot, tail = name.partition(".")
    place = file.locate(word.start)
    return Flag(
        name="-" * (len(head) - len(head.lstrip("-")))
        + head.lstrip("-").replace("_", "-")
        + dot
        + tail,
        value=None if value is None else value.text,
        known=value is None or not value.expands,
        location=place,
        value_location=place if value is None else file.locate(value.start),
    )


def _is_flag(word: Text) -> bool:
    return word.text.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word.text)


def _takes(name: str, following: Text) -> bool:
    """Whether the next word is the value of a flag."""
    if _is_flag(following):
        return False
    dashed = name.replace("_", "-")
    if _SWITCH.match(dashed) and dashed not in _NO_SWITCH:
        return following.text.lower() in {"true", "false"}
    return True


def expand(words: Sequence[Text], known: Mapping[str, Sequence[Text]]) -> Iterator[Text]:
    """Words with the variables replaced that the file gives; the others stay as they are.

    A script in a word stays as it is too: it is taken apart, and its words are replaced, later.
    """
    for word in words:
        whole = _VARIABLE.fullmatch(word.text) if word.expands else None
        name = _name(whole) if whole else ""
        if whole and name in known:
            values = known[name]
            if word.quoted and "[" not in word.text:
                yield from values[:1]
            else:
                yield from (part for value in values for part in _split(value))
        elif word.expands and len(word.text.split()) == 1 and _all_known(word, known):
            text = _VARIABLE.sub(lambda m: known[_name(m)][0].text, word.text)
            yield word if "$" in text or "`" in text else word.with_text(text)
        else:
            yield word


def _all_known(word: Text, known: Mapping[str, Sequence[Text]]) -> bool:
    return all(known.get(_name(m)) for m in _VARIABLE.finditer(word.text))


def _name(found: re.Match[str]) -> str:
    return found[1] or found[2] or found[3]


def _split(value: Text) -> Iterator[Text]:
    """A variable's value as the words that it becomes where it stands without quotes."""
    if value.quoted and " " not in value.text:
        yield value
        return
    yield from (value.cut(m.start(), m.end()) for m in re.finditer(r"\S+", value.text))
