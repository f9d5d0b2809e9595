"""vLLM's KV cache events: which blocks were stored and removed.

The stream holds token ids and, in clear, the salt of every salted request: treat it as secret.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from prefixctl.errors import InputError, ServerError
from prefixctl.ids import BlockHash

STORED_FIELDS = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
                 "medium", "lora_name", "extra_keys")  # fmt: skip
"""Order of a stored event's fields in the array shape of older releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksStored:
    """Blocks that became resident.

    Attributes:
        hashes: The external hash of each block: the low 64 bits, or all bytes as an integer where
            the server sends them whole.
        token_ids: The tokens of all of them.
        block_size: Tokens in a block.
    """

    hashes: tuple[int, ...]
    token_ids: tuple[int, ...] = field(repr=False)
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksRemoved:
    """Blocks that were evicted."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllCleared:
    """The whole cache was reset."""


KvEvent = BlocksStored | BlocksRemoved | AllCleared


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """One message of the stream; a gap in ``sequence`` means that events were lost."""

    sequence: int
    rank: int | None
    events: tuple[KvEvent, ...]


def external_hash(block_hash: BlockHash) -> int:
    """The form in which events carry a block hash by default: its low 64 bits."""
    return int.from_bytes(block_hash, "big") & ((1 << 64) - 1)


class EventStream:
    """A subscription to one server's events."""

    def __init__(self, endpoint: str) -> None:
        """Subscribe.

        Args:
            endpoint: For example ``tcp://127.0.0.1:5557``.

        Raises:
            InputError: If the ``events`` extra is not installed.
        """
        try:
            zmq: Any = importlib.import_module("zmq")
            msgpack: Any = importlib.import_module("msgspec.msgpack")
        except ImportError as exc:
            raise InputError(
                "reading KV events needs pyzmq and msgspec", hint="pip install 'prefixctl[events]'"
            ) from exc
        self._decode = msgpack.decode
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.connect(endpoint)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close(linger=0)
        self._context.term()

    def read(self, *, quiet_seconds: float, limit_seconds: float = 30.0) -> Iterator[EventBatch]:
        """Batches as they come, until none came for a while.

        Args:
            quiet_seconds: Stop after this long without a batch.
            limit_seconds: Stop after this long in any case.
        """
        deadline = time.monotonic() + limit_seconds
        while time.monotonic() < deadline and self._socket.poll(quiet_seconds * 1000):
            _, sequence, payload = self._socket.recv_multipart()
            yield decode_batch(self._decode(payload), int.from_bytes(sequence, "big"))


def decode_batch(payload: Any, sequence: int) -> EventBatch:
    """Decode one message; events may be maps (0.32) or arrays (earlier).

    Raises:
        ServerError: If the shape is unknown.
    """
    try:
        _, raw, *rest = payload
        events = tuple(_event(e) for e in raw)
    except (TypeError, ValueError, KeyError, IndexError) as exc:
        raise ServerError(f"KV event of an unknown shape: {exc}") from exc
    rank = rest[0] if rest and isinstance(rest[0], int) else None
    return EventBatch(sequence=sequence, rank=rank, events=events)


def _event(raw: Mapping[str, Any] | Sequence[Any]) -> KvEvent:
    if isinstance(raw, Mapping):
        kind, fields = raw["type"], raw
    else:
        kind, fields = raw[0], dict(zip(STORED_FIELDS, raw[1:], strict=False))
    if kind == "BlockStored":
        return BlocksStored(
            hashes=_hashes(fields),
            token_ids=tuple(fields["token_ids"]),
            block_size=fields["block_size"],
        )
    if kind == "BlockRemoved":
        return BlocksRemoved(hashes=_hashes(fields))
    if kind == "AllBlocksCleared":
        return AllCleared()
    raise ValueError(f"unknown event {kind!r}")


def _hashes(fields: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(
        int.from_bytes(h, "big") if isinstance(h, bytes) else h for h in fields["block_hashes"]
    )
