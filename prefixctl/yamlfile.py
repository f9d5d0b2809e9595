"""YAML files that people write: loaded with positions, validated with a clear error.

An error names the file, the line and the way out; an unknown key comes with a suggestion.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from prefixctl.core.encoding import NAMES, UndecodableError, decode_text
from prefixctl.errors import InputError


class StrictModel(BaseModel):
    """Base of the models of files that people write: no unknown keys, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=BaseModel)

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_YAML_BYTES = 4 * 1024 * 1024
"""More than people write; a lock of many versions may be larger, see `parse_yaml`."""
MAX_ALIASES = 1000
"""More aliases than a person writes: a file made to grow without end."""


def parse_yaml(
    data: bytes, path: str, error: type[InputError] = InputError, *, limit: int = MAX_YAML_BYTES
) -> yaml.Node | None:
    """The node tree of a YAML document, or None for an empty one.

    Raises:
        InputError: As ``error``, for broken YAML, with line and column; for a duplicate key; for
            bytes that are not UTF-8.
    """
    if len(data) > limit:
        raise error(f"larger than {limit:,} bytes", path=path)
    text = utf8_text(data, path, error)
    try:
        aliases = sum(isinstance(t, yaml.AliasToken) for t in yaml.scan(text, _Loader))
        if aliases > MAX_ALIASES:
            raise error(f"more than {MAX_ALIASES} aliases", path=path, line=1)
        node: yaml.Node | None = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise error(
            f"broken YAML: {exc.problem or exc.context}",
            path=path,
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
            hint="quote text that holds ':' , '{' or '#', and indent with spaces",
        ) from exc
    except (yaml.YAMLError, RecursionError) as exc:
        raise error(f"broken YAML: {exc}", path=path, line=1) from exc
    if node is not None:
        _refuse_duplicate_keys(node, path, error)
    return node


def load_value(data: bytes, path: str, error: type[InputError] = InputError) -> Any:
    """The plain value of a YAML document. Errors as in `parse_yaml`."""
    return _construct(parse_yaml(data, path, error), path, error)


def load_model(
    model: type[M],
    data: bytes,
    path: str,
    error: type[InputError] = InputError,
    *,
    limit: int = MAX_YAML_BYTES,
) -> tuple[M, yaml.Node | None]:
    """Validate a YAML document against a model.

    Returns:
        The model and the node tree, from which `line_of` reads positions.

    Raises:
        InputError: As ``error``, with the line of the first thing that does not fit.
    """
    node = parse_yaml(data, path, error, limit=limit)
    value = _construct(node, path, error)
    return validate(model, {} if value is None else value, path, error, node), node


def validate(
    model: type[M],
    value: object,
    path: str,
    error: type[InputError] = InputError,
    node: yaml.Node | None = None,
) -> M:
    """Validate a plain value. Errors as in `load_model`; they name a line if there is a node."""
    try:
        return model.model_validate(value)
    except (ValidationError, RecursionError) as exc:
        if isinstance(exc, RecursionError):
            raise error("refers to itself", path=path, line=1) from exc
        raise _explain(exc, model, node, path, error) from exc


def line_of(node: yaml.Node | None, where: Sequence[int | str]) -> int | None:
    """The 1-based line of the value (or of the key, for an unknown one) at a path of keys."""
    line = None
    for step in where:
        if node is None:
            break
        line, node = _child(node, step, line)
    if line is None and node is not None:
        line = node.start_mark.line + 1
    return line


def read_bytes(
    path: Path, error: type[InputError] = InputError, *, hint: str = "", limit: int = MAX_FILE_BYTES
) -> bytes:
    """The bytes of a regular file.

    Raises:
        InputError: As ``error``, if it is missing, no regular file (a pipe would never end), above
            the limit, or cannot be read.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise error("not a regular file", path=str(path), hint=hint or None)
        with path.open("rb") as file:
            data = b"" if found.st_size > limit else file.read(limit + 1)
        # A file may grow meanwhile, and those of the system have no size.
        if max(found.st_size, len(data)) > limit:
            raise error(f"larger than {limit:,} bytes", path=str(path))
    except FileNotFoundError as exc:
        what = "a link that leads nowhere" if path.is_symlink() else "no such file"
        raise error(what, path=str(path), hint=hint or None) from exc
    except OSError as exc:
        raise error(f"cannot be read: {exc.strerror}", path=str(path), hint=hint or None) from exc
    except ValueError as exc:
        raise error(f"no path: {exc}", path=str(path), hint=hint or None) from exc
    return data


def utf8_text(data: bytes, path: str, error: type[InputError] = InputError) -> str:
    """The text of a file that must be UTF-8, a leading byte order mark left out, line ends kept.

    Raises:
        InputError: As ``error``, for other bytes, with what they are and the place.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        try:
            found = NAMES[decode_text(data).encoding]
        except UndecodableError as wrong:
            raise error(
                wrong.message, path=path, line=wrong.line, column=wrong.column, hint=wrong.hint
            ) from exc
        raise error(
            f"{found}, where UTF-8 is needed",
            path=path,
            line=1,
            hint=f"save the file as UTF-8, for example with: iconv -f {found} -t UTF-8",
        ) from exc


def is_there(path: Path) -> bool:
    """Whether something has that name, readable or not, a link that leads nowhere included.

    A file that is there and cannot be used is an error, never the same as a missing one.
    """
    return os.path.lexists(path)


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    """A sentence that names the nearest known words, or lists them all if none is near."""
    near = difflib.get_close_matches(word, known, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(sorted(known))}" if known else None


def _construct(node: yaml.Node | None, path: str, error: type[InputError]) -> Any:
    if node is None:
        return None
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        raise error(
            f"broken YAML: {exc.problem}", path=path, line=mark.line + 1 if mark else None
        ) from exc
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as exc:
        raise error(
            f"broken YAML: a tag that does not fit its value ({exc})", path=path, line=1
        ) from exc
    finally:
        loader.dispose()


def _refuse_duplicate_keys(node: yaml.Node, path: str, error: type[InputError]) -> None:
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, yaml.SequenceNode):
            stack.extend(current.value)
        if isinstance(current, yaml.MappingNode):
            keys: dict[str, int] = {}
            for key, value in current.value:
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode):
                    if key.value in keys:
                        raise error(
                            f"the key '{key.value}' stands twice (first on line {keys[key.value]})",
                            path=path,
                            line=line,
                            hint="keep one of them",
                        )
                    keys[key.value] = line
                stack.append(value)


def _child(
    node: yaml.Node, step: int | str, line: int | None
) -> tuple[int | None, yaml.Node | None]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(step):
                return key.start_mark.line + 1, value
        return line or node.start_mark.line + 1, None
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child: yaml.Node = node.value[step]
        return child.start_mark.line + 1, child
    return line, None


def _explain(
    exc: ValidationError,
    model: type[BaseModel],
    node: yaml.Node | None,
    path: str,
    error: type[InputError],
) -> InputError:
    first = exc.errors()[0]
    where = first["loc"]
    name = ".".join(map(str, where))
    line = line_of(node, where) or 1
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(str(where[-1]), _known_keys(model, where[:-1]))
        return error(f"unknown key '{name}'", path=path, line=line, hint=hint)
    if first["type"] == "missing":
        return error(f"'{name}' is missing", path=path, line=line, hint="add it")
    message = first["msg"].removeprefix("Value error, ")
    if where:
        message = f"'{name}': {message[0].lower()}{message[1:]}"
    return error(message, path=path, line=line)


def _known_keys(model: type[BaseModel], where: Sequence[int | str]) -> list[str]:
    current: Any = model
    for step in where:
        if _is_model(current):
            info = current.model_fields.get(str(step))
            current = _container_or_model(info.annotation) if info else None
        else:
            current = _container_or_model(get_args(current)[-1]) if get_args(current) else None
    if not _is_model(current):
        return []
    return [info.alias or name for name, info in current.model_fields.items()]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _container_or_model(annotation: Any) -> Any:
    """Strip unions from an annotation: a model, or a container with models in it."""
    if _is_model(annotation) or get_origin(annotation) in {dict, list}:
        return annotation
    if get_origin(annotation) is tuple:
        return list[get_args(annotation)[0]]  # type: ignore[misc]
    found = (_container_or_model(part) for part in get_args(annotation))
    return next((part for part in found if part is not None), None)
