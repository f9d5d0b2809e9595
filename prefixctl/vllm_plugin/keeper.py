"""In each API process: asks the engines, shows what they count, brings missing pins up."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Hashable, Mapping
from itertools import count
from typing import Any

from vllm import SamplingParams
from vllm.inputs import tokens_input

from prefixctl.core.governing import UTILITY
from prefixctl.engine.admin import GovernedPrefix
from prefixctl.vllm_plugin import series
from prefixctl.vllm_plugin.shelf import Shelf

POLL_SECONDS = 2.0
log = logging.getLogger("vllm.prefixctl")


class Keeper:
    """The link of one API process to all engines of the server."""

    def __init__(self, engine_client: Any, model: str, shelf: Shelf | None = None) -> None:
        """Set up.

        Args:
            engine_client: vLLM's.
            model: Served name, for labels.
            shelf: Published prefixes, if the engines are to know them.
        """
        self._client = engine_client
        self._model = model
        self._shelf = shelf
        self._stamp: Hashable = None
        self._live: set[str] = set()
        self._told = shelf is None
        self._refused: dict[str, str] = {}
        self._answers: list[dict[str, Any]] = []
        self._was_ready = False
        self._numbers = count()
        self._task: asyncio.Task[None] | None = None
        self._shown: dict[int, set[str]] = {}

    def start(self) -> None:
        """Ask from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The answers of all engines, by data-parallel rank; see `Desk.answer`."""
        core = self._client.engine_core
        answers = await core.call_utility_all_async(UTILITY, json.dumps(question))
        return [json.loads(answer) for answer in answers]

    def missing(self) -> list[str]:
        """What was not resident when the engines were last asked; it names no tenant."""
        if not self._told or not self._answers:
            return ["the registry and the engines have not been read yet"]
        refused = [f"{name.partition('#')[0]}: {why}" for name, why in self._refused.items()]
        return refused + [
            f"{pin['name'].partition('#')[0]} on engine {rank}: {pin['pinned']:,} of "
            f"{pin['blocks']:,} blocks"
            for rank, answer in enumerate(self._answers)
            for pin in answer["pins"]
            if pin["active"] and pin["pinned"] < pin["blocks"]
        ]

    def is_ready(self) -> bool:
        """Whether everything that is to be pinned has been, once (requirement W5).

        It stays so: a later publish must not take all replicas out of service together.
        """
        self._was_ready = self._was_ready or not self.missing()
        return self._was_ready

    async def tell_published(self) -> None:
        """Tell the engines what is published, if that has changed.

        Every process does it, which changes nothing: the engines are told the same.
        """
        shelf = self._shelf
        if shelf is None or (stamp := shelf.stamp()) == self._stamp:
            return
        stock = await asyncio.to_thread(shelf.read)
        share = {"ask": "share", "stamp": stock.digest}
        if any(answer["wanted"] for answer in await self.ask(share)):
            await self.ask(share | {"groups": stock.public})
        if shelf.pins_live:
            await self._pin_live({prefix.name: prefix for prefix in stock.live})
        self._stamp, self._told = stamp, True

    async def _pin_live(self, live: Mapping[str, GovernedPrefix]) -> None:
        for gone in self._live - set(live):
            await self.ask({"ask": "unpin", "name": gone})
        # A purge or an operator may have let some of the others go.
        pinned = [{pin["name"] for pin in answer["pins"]} for answer in self._answers]
        self._live = self._live.intersection(live, *pinned)
        self._refused = {}
        for name, prefix in live.items():
            if name in self._live:
                continue
            answers = await self.ask({"ask": "pin", "prefix": prefix.to_json()})
            reasons = {answer["reason"] for answer in answers if not answer["accepted"]}
            if reasons:
                self._refused[name] = "; ".join(sorted(reasons))
                log.warning("prefixctl: %s is live and not pinned: %s", name, self._refused[name])
            else:
                self._live.add(name)

    async def look_after(self) -> None:
        """Ask once: show what was counted, and bring up what is missing."""
        while True:
            answers = self._answers = await self.ask({"ask": "drain"})
            for rank, answer in enumerate(answers):
                self._show(rank, answer)
            missing = [(r, a["missing"]) for r, a in enumerate(answers) if a["missing"]]
            if not missing:
                return
            await asyncio.gather(*(self._compute(rank, each) for rank, each in missing))

    def _show(self, rank: int, answer: Mapping[str, Any]) -> None:
        names = {pin["name"] for pin in answer["pins"]}
        for gone in self._shown.get(rank, set()) - names:
            series.forget(self._model, rank, gone)
        self._shown[rank] = names
        series.export(self._model, rank, answer)

    async def _run(self) -> None:
        while True:
            try:
                await self.tell_published()
                await self.look_after()
            except Exception as error:
                # The next round tries again, unless the engine is dead.
                if getattr(self._client, "errored", False):
                    return
                log.warning("prefixctl: looking after the engines failed: %r", error)
            await asyncio.sleep(POLL_SECONDS)

    async def _compute(self, rank: int, prefix: Mapping[str, Any]) -> None:
        """One request that leaves the prefix in the cache of one engine."""
        ranks = len(self._client.engine_core.core_engines)
        answers = self._client.generate(
            tokens_input(prefix["token_ids"], cache_salt=prefix["salt"]),
            SamplingParams(max_tokens=1, temperature=0.0),
            f"prefixctl-{id(self):x}-{next(self._numbers)}",
            data_parallel_rank=rank if ranks > 1 else None,
        )
        try:
            async for _ in answers:
                pass
        except ValueError as error:
            log.warning("prefixctl: %s cannot be computed: %s", prefix["name"], error)
