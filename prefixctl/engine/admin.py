"""The admin routes of a governed server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

from prefixctl.errors import InputError, ServerError, UnreachableError
from prefixctl.ids import Salt

ADMIN_TOKEN = "PREFIXCTL_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT_SECONDS = 300.0
MAX_MESSAGE = 300


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
        """What an engine said of a prefix."""
        return cls(
            server=server,
            rank=rank,
            name=answer["name"],
            blocks=answer["blocks"],
            resident=answer.get("resident", 0),
            pinned=answer.get("pinned", 0),
            active=answer.get("active", False),
            auto_hits=answer.get("auto_hits"),
            hits=answer.get("hits", 0),
            accepted=answer.get("accepted", True),
            reason=answer.get("reason") or answer.get("why_partial") or "",
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
        """What an engine said of itself."""
        return cls(
            server=server,
            rank=rank,
            policy=answer["policy"],
            blocks=answer["blocks"],
            pin_cap=answer["pin_cap"],
            pins=tuple(PinState.from_json(server, rank, pin) for pin in answer["pins"]),
            raw=answer,
        )


class AdminClient:
    """One server's admin routes, for the holder of its token."""

    def __init__(
        self, url: str, token: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(TIMEOUT_SECONDS, connect=10.0),
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def state(self) -> list[EngineState]:
        """Each engine's state. Errors as in `pin`."""
        return [
            EngineState.from_json(self.url, rank, answer)
            for rank, answer in enumerate(self._ask("GET", "/prefixctl/state"))
        ]

    def pin(self, prefix: GovernedPrefix, *, auto_hits: int | None = None) -> list[PinState]:
        """Pin a prefix on every engine of the server.

        Raises:
            UnreachableError: If the server does not answer.
            ServerError: If it has no such routes, or refuses.
            InputError: If the token is not the server's.
        """
        body = prefix.to_json() | {"auto_hits": auto_hits}
        answers = self._ask("POST", "/prefixctl/pin", body)
        return [PinState.from_json(self.url, rank, answer) for rank, answer in enumerate(answers)]

    def unpin(self, name: str) -> list[int | None]:
        """Let a prefix go; for each engine the blocks given back, None if it was not pinned."""
        answers = self._ask("POST", "/prefixctl/unpin", {"name": name})
        return [answer["unpinned"] for answer in answers]

    def resident(self, prefixes: Sequence[GovernedPrefix]) -> list[PinState]:
        """How much of each prefix every engine has."""
        body = {"prefixes": [prefix.to_json() for prefix in prefixes]}
        return [
            PinState.from_json(self.url, rank, found)
            for rank, answer in enumerate(self._ask("POST", "/prefixctl/resident", body))
            for found in answer["prefixes"]
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
        try:
            response = self._client.request(method, path, json=body)
        except httpx.LocalProtocolError as exc:
            raise InputError(
                f"the admin token cannot be sent: {exc}", hint=f"look at ${ADMIN_TOKEN}"
            ) from exc
        except httpx.HTTPError as exc:
            raise UnreachableError(
                f"{self.url} does not answer: {type(exc).__name__}", hint="is the server up?"
            ) from exc
        if response.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise InputError(
                f"{self.url} does not accept the admin token: {_words(response)}",
                hint=f"set ${ADMIN_TOKEN} to the one that the server was started with",
            )
        if response.status_code == httpx.codes.NOT_FOUND:
            raise ServerError(
                f"{self.url} has no admin routes, so its cache is not governed",
                hint="start it with `prefixctl serve`, `server.governed: true`",
            )
        if not response.is_success:
            raise ServerError(f"{self.url}{path} answered {response.status_code}: "
                              f"{_words(response)}")  # fmt: skip
        try:
            engines: list[dict[str, Any]] = response.json()["engines"]
        except (ValueError, KeyError, TypeError) as exc:
            raise ServerError(f"{self.url}{path} answered with something else") from exc
        return engines


def _words(response: httpx.Response) -> str:
    try:
        data = json.loads(response.text)
        text = str(data.get("detail") or data["error"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        text = response.text
    return text[:MAX_MESSAGE]
