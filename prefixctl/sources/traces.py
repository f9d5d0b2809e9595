"""Request traces without text: JSON lines with hashed block ids, as Mooncake publishes them.

A line is ``{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids":
[...]}``. Ids are chained: an id stands for the content of a block and of all blocks before it.
The last id of a line may stand for a partial block. A line may name its ``"tenant"``. The file
may be compressed with gzip.
"""

from __future__ import annotations

import gzip
import io
import json
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefixctl.errors import InputError, NothingToDoError

SHOWN = 5
SHOWN_ID = 40
LARGEST_BLOCK = 1 << 16
WIDEST_GUESS = 512
LARGEST_NUMBER = 1 << 53
"""Beyond it a number of milliseconds or tokens is no longer exact, and no longer meant."""
GZIP = b"\x1f"
"""The first byte of a compressed file, and of no JSON."""
MAX_LINE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedLine:
    """A line that is no request.

    Attributes:
        line: Its number, from 1.
        reason: What is wrong with it.
    """

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The requests of a trace, in order of time.

    Attributes:
        path: Where it was read.
        block_tokens: The block size.
        timestamps_ms: When each request arrived.
        input_tokens: Its prompt.
        output_tokens: Its answer.
        chains: Its full blocks as dense content ids, root first.
        contents: Content ids run from 0 to this number.
        tenants: Whose it was, where lines have a ``tenant``.
        malformed: Lines that were left out, if that was allowed.
    """

    path: str
    block_tokens: int
    timestamps_ms: list[float] = field(repr=False)
    input_tokens: list[int] = field(repr=False)
    output_tokens: list[int] = field(repr=False)
    chains: list[list[int]] = field(repr=False)
    contents: int
    tenants: list[str | None] = field(repr=False)
    malformed: tuple[MalformedLine, ...] = field(default=(), repr=False)


@dataclass(slots=True)
class _Line:
    number: int
    timestamp: float
    input_tokens: int
    output_tokens: int
    ids: list[Any]
    tenant: str | None


class _Unpacked(gzip.GzipFile):
    """An open file unpacked, and closed with it."""

    def __init__(self, packed: io.BufferedReader) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


class _LineError(ValueError):
    """What is wrong with a line."""


def load_trace(
    path: Path, *, block_tokens: int | None = None, skip_malformed: bool = False
) -> Trace:
    """Read a trace.

    Args:
        path: The file.
        block_tokens: The block size; found from lengths and numbers of ids if None.
        skip_malformed: Leave out lines that are no requests and say so in the result, instead
            of raising.

    Raises:
        InputError: If the file cannot be read, a line is malformed, or no block size fits.
        NothingToDoError: If there is no request in it.
    """
    bad: list[MalformedLine] = []
    lines = list(_parse(path, bad))
    if not lines and not bad:
        raise NothingToDoError("the trace is empty", path=str(path))
    if bad and not skip_malformed:
        raise _refusal(path, bad)
    if not lines:
        raise NothingToDoError(f"none of {len(bad):,} lines is a request", path=str(path))
    size = block_tokens or _infer_block_tokens(path, lines)
    trace = _assemble(path, lines, size, bad)
    if bad and not skip_malformed:
        raise _refusal(path, bad)
    if not trace.chains:
        raise NothingToDoError(f"none of {len(bad):,} lines is a request", path=str(path))
    return trace


def _refusal(path: Path, bad: list[MalformedLine]) -> InputError:
    bad.sort(key=lambda line: line.line)
    rest = bad[1:SHOWN]
    more = "".join(f"; line {b.line}: {b.reason}" for b in rest)
    if len(bad) > 1:
        more += f"; {len(bad):,} malformed lines in all"
    return InputError(
        bad[0].reason + more,
        path=str(path),
        line=bad[0].line,
        hint="--skip-malformed leaves them out, counted in the result",
    )


def _parse(path: Path, bad: list[MalformedLine]) -> Iterator[_Line]:
    try:
        with _open(path) as file:
            for number, raw in enumerate(_lines(file, path), 1):
                text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
                if not text.strip():
                    continue
                try:
                    yield _read_line(number, text)
                except _LineError as error:
                    bad.append(MalformedLine(line=number, reason=str(error)))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the trace: {reason}", path=str(path)) from error


def _open(path: Path) -> io.BufferedIOBase:
    """The file's lines as bytes, unpacked if it is compressed."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise InputError("a device, and no trace", path=str(path), hint="give a file or a pipe")
    # What comes through a pipe can be read once: its first byte is looked at, not taken.
    file = path.open("rb")
    try:
        packed = file.peek(1)[:1] == GZIP
    except OSError:
        file.close()
        raise
    return _Unpacked(file) if packed else file


def _lines(file: io.BufferedIOBase, path: Path) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"a line of more than {MAX_LINE_BYTES:,} bytes",
                path=str(path),
                line=number,
                hint="a trace has one request on a line",
            )
        yield line


def _read_line(number: int, text: bytes) -> _Line:
    value = _json(text)
    if not isinstance(value, dict):
        raise _LineError("not a JSON object")
    ids = value.get("hash_ids")
    if not isinstance(ids, list) or not all(type(i) in {int, str} for i in ids):
        raise _LineError("'hash_ids' is no list of numbers or strings")
    tenant = value.get("tenant")
    if tenant is not None and not isinstance(tenant, str):
        raise _LineError("'tenant' is no string")
    timestamp: Any = value.get("timestamp")
    if type(timestamp) not in {int, float} or not 0 <= timestamp <= LARGEST_NUMBER:
        raise _LineError("'timestamp' is no number of milliseconds")
    return _Line(
        number=number,
        timestamp=timestamp,
        input_tokens=_length(value, "input_length"),
        output_tokens=_length(value, "output_length"),
        ids=ids,
        tenant=tenant,
    )


def _json(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise _LineError("not UTF-8") from error
    except json.JSONDecodeError as error:
        end = "" if text.endswith(b"\n") else "; the line has no end: is the file cut off?"
        raise _LineError(f"not JSON at column {error.colno}: {error.msg}{end}") from error
    except (ValueError, RecursionError) as error:
        raise _LineError(
            "not JSON that can be read: nested too deeply, or a huge number"
        ) from error


def _length(value: dict[str, Any], name: str) -> int:
    length = value.get(name)
    if type(length) is not int or not 0 <= length <= LARGEST_NUMBER:
        raise _LineError(f"'{name}' is no number of tokens")
    return length


def _infer_block_tokens(path: Path, lines: list[_Line]) -> int:
    """The size that fits most lines; among those that fit equally well, a power of two."""
    longest = max(lines, key=lambda line: len(line.ids))
    sizes = {1 << power for power in range(LARGEST_BLOCK.bit_length())}
    if longest.ids:
        low = -(-longest.input_tokens // (len(longest.ids) + 1)) or 1
        high = longest.input_tokens // max(len(longest.ids) - 1, 1)
        sizes |= set(range(low, min(high, low + WIDEST_GUESS) + 1))
    votes: Counter[int] = Counter()
    shapes = Counter((line.input_tokens, len(line.ids)) for line in lines)
    for size in sizes:
        votes[size] = sum(n for shape, n in shapes.items() if _fits(*shape, size))
    best = max(sizes, key=lambda size: (votes[size], size & (size - 1) == 0, size))
    if votes[best] * 2 <= len(lines):
        raise InputError(
            "no block size fits the lengths and numbers of ids of most lines",
            path=str(path),
            hint="give --block-size; ids stand for full blocks, and for the partial one at the end",
        )
    return best


def _fits(tokens: int, ids: int, size: int) -> bool:
    return ids in {tokens // size, -(-tokens // size)}


def _assemble(path: Path, lines: list[_Line], size: int, bad: list[MalformedLine]) -> Trace:
    lines.sort(key=lambda line: line.timestamp)
    dense: dict[Any, int] = {}
    parents: list[int] = []
    chains: list[list[int]] = []
    good: list[_Line] = []
    for line in lines:
        try:
            chains.append(_chain(line, size, dense, parents))
            good.append(line)
        except _LineError as error:
            bad.append(MalformedLine(line=line.number, reason=str(error)))
    bad.sort(key=lambda line: line.line)
    return Trace(
        path=str(path),
        block_tokens=size,
        timestamps_ms=[line.timestamp for line in good],
        input_tokens=[line.input_tokens for line in good],
        output_tokens=[line.output_tokens for line in good],
        chains=chains,
        contents=len(parents),
        tenants=[line.tenant for line in good],
        malformed=tuple(bad),
    )


def _chain(line: _Line, size: int, dense: dict[Any, int], parents: list[int]) -> list[int]:
    """The full blocks of a line, entered into the ids seen; nothing is entered on error."""
    if not _fits(line.input_tokens, len(line.ids), size):
        raise _LineError(
            f"{len(line.ids):,} ids do not fit {line.input_tokens:,} tokens in blocks of {size:,}"
        )
    ids = line.ids[: line.input_tokens // size]
    chain: list[int] = []
    # -1 stands for the root inside this function and in `parents` only.
    parent, known = -1, len(dense)
    for position, name in enumerate(ids):
        content = dense.get(name)
        if content is None:
            content = len(dense)
            dense[name] = content
            parents.append(parent)
        elif parents[content] != parent:
            for fresh in ids[:position]:
                if dense.get(fresh, 0) >= known:
                    del dense[fresh]
            del parents[known:]
            raise _LineError(
                f"id {str(name)[:SHOWN_ID]} follows another id than before: ids must be chained"
            )
        chain.append(content)
        parent = content
    return chain
