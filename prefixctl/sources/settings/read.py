"""From a path to the launches in it: which files may hold some, and how each is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from prefixctl.core.encoding import UndecodableError, decode_text
from prefixctl.core.prompt import PROMPT_FILE
from prefixctl.errors import InputError
from prefixctl.sources.files import TOOL_FOLDERS, walk
from prefixctl.sources.settings.dockerfile import dockerfile_launches
from prefixctl.sources.settings.launch import Launch, SettingsFile
from prefixctl.sources.settings.manifests import yaml_format, yaml_launches
from prefixctl.sources.settings.script import Host, script_launches
from prefixctl.sources.settings.text import SourceFile
from prefixctl.yamlfile import read_bytes

MAX_FILE_BYTES = 4 * 1024 * 1024
_YAML = frozenset([".yaml", ".yml", ".json"])
_SCRIPTS = frozenset([".sh", ".bash", ".zsh"])
_DOCKER_NAMES = ("dockerfile", "containerfile")
_ENGINES = (b"vllm", b"sglang")
_SKIPPED_FOLDERS = TOOL_FOLDERS - {"dist", "build"}
"""What tools make; a folder of files to build or to ship is nobody's cache here."""


def find_settings(paths: Sequence[Path]) -> list[Path]:
    """The files that paths name, and those in folders that speak of an engine; sorted, once each.

    Raises:
        InputError: If a path does not exist, or a file in a folder cannot be read.
    """
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", path=str(path))
        found.update(_walk(path) if path.is_dir() else [path])
    return sorted(found)


def read_settings(path: Path) -> SettingsFile:
    """The launches of a file; none if it starts no engine.

    Raises:
        InputError: If it cannot be read, its encoding is not certain, or it is broken YAML.
    """
    data = read_bytes(path, limit=MAX_FILE_BYTES)
    try:
        text = decode_text(data).text
    except UndecodableError as exc:
        raise InputError(
            exc.message, path=str(path), line=exc.line, column=exc.column, hint=exc.hint
        ) from exc
    return parse_settings(SourceFile.of(str(path), text))


def parse_settings(file: SourceFile) -> SettingsFile:
    """The launches of a file's text. Errors as in `read_settings`, for broken YAML."""
    form, launches = _parse(file)
    numbers = {f.location.line for x in launches for f in x.flags}
    numbers |= {f.value_location.line for x in launches for f in x.flags}
    numbers |= {x.location.line for x in launches}
    numbers |= {v.location.line for x in launches for v in x.environment}
    return SettingsFile(
        path=file.path,
        format=form,
        launches=launches,
        lines={n: file.line(n) for n in sorted(numbers)},
        text=file.text,
    )


def _parse(file: SourceFile) -> tuple[str, tuple[Launch, ...]]:
    name = Path(file.path).name.lower()
    if name.startswith(_DOCKER_NAMES) or name.endswith(_DOCKER_NAMES):
        return "dockerfile", tuple(dockerfile_launches(file))
    if Path(name).suffix in _YAML:
        return yaml_format(file), tuple(yaml_launches(file))
    return "shell", tuple(script_launches(file.whole(), file, Host()))


def _walk(top: Path) -> Iterator[Path]:
    for folder in walk(top, skip=_SKIPPED_FOLDERS):
        for file in folder.files:
            path = folder.path / file
            if _may_hold_launches(path):
                yield path


def _may_hold_launches(path: Path) -> bool:
    lowered = path.name.lower()
    docker = lowered.startswith(_DOCKER_NAMES) or lowered.endswith(_DOCKER_NAMES)
    if (not docker and path.suffix.lower() not in _YAML | _SCRIPTS) or lowered == PROMPT_FILE:
        return False
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        return False
    data = read_bytes(path, limit=MAX_FILE_BYTES).lower()
    return any(e in data for e in _ENGINES)
