"""The admin routes of a governed server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field

from prefixctl.engine.connection import Connection
from prefixctl.errors import InputError, ServerError, UnreachableError
from prefixctl.ids import Salt

ADMIN_TOKEN = "PREFIXCTL_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT_SECONDS = 300.0
MAX_MESSAGE = 300
MAX_ANSWER_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedPrefix:
    """A prefix as the server is told of it.

    Attributes:
        name: ``prompt@version``, and ``#`` with the namespace's pseudonym where it has a salt.
        token_ids: Its tokens.
        section_ends: Where its sections end, in tokens.
        salt: The namespace's salt.
    """

    name: str
    token_ids: tuple[int, ...] = field(repr=False)
    section_ends: tuple[int, ...] = ()
    salt: Salt | None = None

    def to_json(self) -> dict[str, Any]:
        """The body of a request."""
        return {
            "name": self.name,
            "token_ids": list(self.token_ids),
            "section_ends": list(self.section_ends),
            "salt": None if self.salt is None else str(self.salt),
        }


Amount = Annotated[int, Field(ge=0)]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Pin(_Answer):
    name: str
    blocks: Amount
    resident: Amount = 0
    pinned: Amount = 0
    active: bool = False
    auto_hits: Amount | None = None
    hits: Amount = 0
    accepted: bool = True
    reason: str = ""
    why_partial: str = ""


class _Blocks(_Answer):
    total: Amount
    pinned: Amount
    pinned_idle: Amount
    in_flight: Amount
    cached: Amount
    blank: Amount


class _State(_Answer):
    policy: str
    blocks: _Blocks
    pin_cap: Amount
    pins: list[dict[str, Any]]


class _Unpinned(_Answer):
    unpinned: Amount | None


class _Resident(_Answer):
    prefixes: list[dict[str, Any]]


class Cleared(_Answer):
    """What one engine let go of.

    Attributes:
        device: Blocks of the device.
        host: Blocks of host memory.
        left: Blocks in use, and requests under way that may store more.
        unknown: Whether there are tiers below into which nobody can look.
    """

    device: Amount
    host: Amount
    left: Amount
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PinState:
    """How a prefix stands on one engine.

    Attributes:
        server: Base address.
        rank: Data-parallel rank.
        name: Of the prefix.
        blocks: Its governed blocks.
        resident: Leading blocks that are cached.
        pinned: Blocks that are pinned.
        active: Whether the server keeps it pinned.
        auto_hits: Hits within an hour that pin it by themselves; None for a pin for good.
        hits: Requests that found it whole.
        accepted: Whether a wish to pin was accepted.
        reason: Why not, or why not all of it.
    """

    server: str
    rank: int
    name: str
    blocks: int
    resident: int = 0
    pinned: int = 0
    active: bool = False
    auto_hits: int | None = None
    hits: int = 0
    accepted: bool = True
    reason: str = ""

    @classmethod
    def from_json(cls, server: str, rank: int, answer: Mapping[str, Any]) -> Self:
        """What an engine said of a prefix; ValueError if that is something else."""
        said = _Pin.model_validate(answer)
        return cls(
            server=server,
            rank=rank,
            reason=said.reason or said.why_partial,
            **said.model_dump(exclude={"reason", "why_partial"}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What one engine says of its governed pool.

    Attributes:
        server: Base address.
        rank: Data-parallel rank.
        policy: Eviction policy.
        blocks: Blocks by state: total, pinned, pinned_idle, cached, in_flight, blank.
        pin_cap: Blocks that may be pinned.
        pins: The pins.
        raw: The whole answer.
    """

    server: str
    rank: int
    policy: str
    blocks: Mapping[str, int]
    pin_cap: int
    pins: tuple[PinState, ...]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, server: str, rank: int, answer: Mapping[str, Any]) -> Self:
        """What an engine said of itself; ValueError if that is something else."""
        said = _State.model_validate(answer)
        return cls(
            server=server,
            rank=rank,
            policy=said.policy,
            blocks=said.blocks.model_dump(),
            pin_cap=said.pin_cap,
            pins=tuple(PinState.from_json(server, rank, pin) for pin in said.pins),
            raw=answer,
        )


class AdminClient(Connection):
    """One server's admin routes, for the holder of its token."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect lazily to a server.

        Args:
            url: Base address, for example ``http://127.0.0.1:8000``.
            token: The server's admin token.
            timeout_seconds: For one whole answer; a pin computes what is missing.
            transport: For tests.

        Raises:
            UsageError: If the address is none.
            InputError: If the token cannot be sent.
        """
        try:
            super().__init__(url, token=token, timeout_seconds=timeout_seconds, transport=transport)
        except ValueError as exc:
            raise InputError(
                "the admin token cannot be sent: it holds other than printable ASCII",
                hint=f"look at ${ADMIN_TOKEN}",
            ) from exc
        self._token = token
        self._timeout = timeout_seconds

    def state(self) -> list[EngineState]:
        """Each engine's state. Errors as in `pin`."""
        answers = self._ask("GET", "/prefixctl/state")
        with self._understood("/prefixctl/state"):
            return [EngineState.from_json(self.url, r, answer) for r, answer in enumerate(answers)]

    def pin(self, prefix: GovernedPrefix, *, auto_hits: int | None = None) -> list[PinState]:
        """Pin a prefix on every engine of the server.

        Raises:
            UnreachableError: If the server does not answer.
            ServerError: If it has no such routes, refuses, or answers with something else.
            InputError: If the token is not the server's.
        """
        body = prefix.to_json() | {"auto_hits": auto_hits}
        answers = self._ask("POST", "/prefixctl/pin", body)
        with self._understood("/prefixctl/pin"):
            return [PinState.from_json(self.url, rank, a) for rank, a in enumerate(answers)]

    def unpin(self, name: str) -> list[int | None]:
        """Let a prefix go; for each engine the blocks given back, None if it was not pinned."""
        answers = self._ask("POST", "/prefixctl/unpin", {"name": name})
        with self._understood("/prefixctl/unpin"):
            return [_Unpinned.model_validate(answer).unpinned for answer in answers]

    def purge(self, owners: Sequence[str]) -> list[Cleared]:
        """Let every engine forget what these owners have, by pseudonym. Errors as in `pin`."""
        answers = self._ask("POST", "/prefixctl/purge", {"owners": list(owners)})
        with self._understood("/prefixctl/purge"):
            return [Cleared.model_validate(answer) for answer in answers]

    def resident(self, prefixes: Sequence[GovernedPrefix]) -> list[PinState]:
        """How much of each prefix every engine has. Errors as in `pin`."""
        body = {"prefixes": [prefix.to_json() for prefix in prefixes]}
        answers = self._ask("POST", "/prefixctl/resident", body)
        with self._understood("/prefixctl/resident"):
            found = [_Resident.model_validate(answer).prefixes for answer in answers]
            if any(len(each) != len(prefixes) for each in found):
                raise ValueError("not as many prefixes as were asked for")
            return [
                PinState.from_json(self.url, rank, prefix)
                for rank, each in enumerate(found)
                for prefix in each
            ]

    def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Any question of the routes, as the engine's desk takes it; one answer for each rank."""
        arguments = dict(question)
        asked = arguments.pop("ask")
        if asked == "state":
            return self._ask("GET", "/prefixctl/state")
        body = arguments["prefix"] if asked == "pin" else arguments
        return self._ask("POST", f"/prefixctl/{asked}", body)

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        status, data = self._request(method, path, body)
        if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise InputError(
                f"{self.url} does not accept the admin token: {self._words(data, body)}",
                hint=f"set ${ADMIN_TOKEN} to the one that the server was started with",
            )
        if status == httpx.codes.NOT_FOUND:
            raise ServerError(
                f"{self.url} has no admin routes, so its cache is not governed",
                hint="start it with `prefixctl serve`, `server.governed: true`",
            )
        if not httpx.codes.is_success(status):
            raise ServerError(f"{self.url}{path} answered {status}: {self._words(data, body)}")
        with self._understood(path):
            found = json.loads(data, parse_constant=_no_number)["engines"]
            if not isinstance(found, list) or not all(isinstance(e, dict) for e in found):
                raise ValueError("no list of engines")
            if not found:
                raise ValueError("not one engine")
            engines: list[dict[str, Any]] = found
        return engines

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        """Status and body, within a size and a time for all of it."""
        deadline = time.monotonic() + self._timeout
        data = bytearray()
        try:
            with self._client.stream(method, path, json=body) as response:
                for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > MAX_ANSWER_BYTES:
                        raise ServerError(
                            f"{self.url}{path} answered with more than {MAX_ANSWER_BYTES:,} bytes"
                        )
                    if time.monotonic() > deadline:
                        raise ServerError(
                            f"{self.url}{path} did not end within {self._timeout:g} s"
                        )
                return response.status_code, bytes(data)
        except httpx.HTTPError as exc:
            raise UnreachableError(
                f"{self.url} does not answer: {type(exc).__name__}", hint="is the server up?"
            ) from exc

    @contextmanager
    def _understood(self, path: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise ServerError(
                f"{self.url}{path} answered with something else than prefixctl's routes do",
                hint="is it a server of this version that `prefixctl serve` started?",
            ) from exc

    def _words(self, data: bytes, body: Mapping[str, Any] | None) -> str:
        """A server's own words, without the token and the salt that were sent."""
        text = data[: 64 * MAX_MESSAGE].decode(errors="replace")
        try:
            found = json.loads(text)
            text = str(found.get("detail") or found["error"]["message"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # then as it is
        sent = [body or {}, *((body or {}).get("prefixes") or ())]
        for secret in (self._token, *(str(each.get("salt") or "") for each in sent)):
            text = text.replace(secret, "***") if secret else text
        return text[:MAX_MESSAGE]


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
