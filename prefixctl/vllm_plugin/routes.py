"""The admin routes: pins, residency and state of the governed cache, for holders of a token.

They live under ``/prefixctl`` on the server's own port and guard themselves; vLLM's API key does
not open them.
"""

from __future__ import annotations

import hmac
import os
from argparse import Namespace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import State

from prefixctl.vllm_plugin import guard
from prefixctl.vllm_plugin.keeper import Keeper
from prefixctl.vllm_plugin.shelf import Shelf

TOKEN_VARIABLE = "PREFIXCTL_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
attached = False
"""Whether vLLM took the routes in: `gate` refuses to serve without them."""


class PrefixBody(BaseModel):
    """A governed prefix; see `desk.Prefix`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=200)
    token_ids: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, max_length=2_000_000)
    section_ends: list[int] = Field(default_factory=list, max_length=1_000)
    salt: str | None = Field(default=None, max_length=128, repr=False)
    auto_hits: int | None = Field(default=None, ge=1, le=100_000)


class UnpinBody(BaseModel):
    """The name of a pin."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=200)


class ResidentBody(BaseModel):
    """Prefixes to look for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prefixes: list[PrefixBody] = Field(max_length=1_000)


class PurgeBody(BaseModel):
    """Pseudonyms of owners of blocks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    owners: list[str] = Field(min_length=1, max_length=10_000)


def refusal(authorization: str) -> tuple[int, str] | None:
    """Status and words for who does not hold the admin token; None for who does."""
    expected = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not expected:
        return 403, f"the server has no admin token: start it with ${TOKEN_VARIABLE}"
    scheme, _, given = authorization.partition(" ")
    same = hmac.compare_digest(given.strip().encode(), expected.encode())
    return None if scheme.lower() == "bearer" and same else (401, "not the server's admin token")


def admitted(request: Request) -> None:
    """Let holders of the admin token in; `gate` has asked before the body was read.

    Raises:
        HTTPException: See `refusal`.
    """
    refused = refusal(request.headers.get("authorization", ""))
    if refused is not None:
        raise HTTPException(*refused)


PREFIX = "/prefixctl"
OPEN_PATHS = (f"{PREFIX}/ready",)
router = APIRouter(prefix=PREFIX, dependencies=[Depends(admitted)])
open_router = APIRouter(prefix=PREFIX)


def _keeper(request: Request) -> Keeper:
    keeper: Keeper = request.app.state.prefixctl
    return keeper


KeeperOf = Annotated[Keeper, Depends(_keeper)]


@open_router.get("/ready")
async def ready(keeper: KeeperOf, response: Response) -> dict[str, Any]:
    """503 until every prefix that is to be pinned has been, then 200; and what is missing now.

    Probes have no token, so it names prompts and counts, and nothing of tenants; and it costs
    the engines nothing.
    """
    ready = keeper.is_ready()
    response.status_code = 200 if ready else 503
    return {"ready": ready, "missing": keeper.missing()}


@router.get("/state")
async def read_state(keeper: KeeperOf) -> dict[str, Any]:
    """Policy, partition of the pool, pins, owners and counters of each engine."""
    return {"engines": await keeper.ask({"ask": "state"})}


@router.post("/pin")
async def pin(body: PrefixBody, keeper: KeeperOf) -> dict[str, Any]:
    """Pin a prefix on every engine, and compute it where it is not cached."""
    answers = await keeper.ask({"ask": "pin", "prefix": body.model_dump()})
    if not any(answer["accepted"] and answer["blocks"] for answer in answers):
        return {"engines": answers}
    await keeper.look_after()
    found = await keeper.ask({"ask": "resident", "prefixes": [body.model_dump()]})
    return {"engines": [a | f["prefixes"][0] for a, f in zip(answers, found, strict=True)]}


@router.post("/unpin")
async def unpin(body: UnpinBody, keeper: KeeperOf) -> dict[str, Any]:
    """Let a prefix go."""
    return {"engines": await keeper.ask({"ask": "unpin", "name": body.name})}


@router.post("/resident")
async def resident(body: ResidentBody, keeper: KeeperOf) -> dict[str, Any]:
    """How many leading blocks of each prefix every engine has."""
    prefixes = [prefix.model_dump() for prefix in body.prefixes]
    return {"engines": await keeper.ask({"ask": "resident", "prefixes": prefixes})}


@router.post("/purge")
async def purge(body: PurgeBody, keeper: KeeperOf) -> dict[str, Any]:
    """Let go of what some owners have on the devices and in host memory."""
    return {"engines": await keeper.ask({"ask": "purge", "owners": body.owners})}


class AdminRoutes:
    """vLLM's endpoint plugin."""

    name = "prefixctl"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes."""
        global attached  # noqa: PLW0603 - one flag for each process
        guard.check()
        app.include_router(router)
        app.include_router(open_router)
        attached = True

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        """Link the routes to the engines."""
        served = args.served_model_name
        model = (served[0] if isinstance(served, list) else served) or args.model
        keeper = Keeper(engine_client, model, Shelf.from_environment())
        await keeper.ask({"ask": "state"})
        state.prefixctl = keeper
        keeper.start()
