"""vLLM's cache manager without a model: requests come, find blocks, take blocks and go."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import torch
from vllm import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

from prefixctl.core.governing import DeviceSettings, Sharing, pin_cap
from prefixctl.core.pinbook import PinBook
from prefixctl.core.tenancy import Secret
from prefixctl.core.ticket import TICKET_ARGUMENT
from prefixctl.vllm_plugin.desk import Desk, prefix_hasher
from prefixctl.vllm_plugin.governor import Governor, PoolShape
from prefixctl.vllm_plugin.pool import GovernedBlockPool
from prefixctl.vllm_plugin.scheduler import GovernedManager
from prefixctl.vllm_plugin.sharing import Library, install

BLOCK = 4
MAX_LEN = 64
ALGORITHM = "sha256_cbor"
SECRET = Secret(b"a secret of tests only")
_numbers = count()


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A manager, stock or governed, and requests on it."""

    def __init__(
        self, blocks: int, settings: DeviceSettings | None, *, events: bool = False
    ) -> None:
        function = get_hash_fn_by_name(ALGORITHM)
        init_none_hash(function)
        self.hasher = get_request_block_hasher(BLOCK, function)
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        config = KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["0"], spec)]
        )
        self.manager: Any = KVCacheManager(
            config, MAX_LEN, BLOCK, BLOCK, log_stats=True, enable_kv_cache_events=events
        )
        self.clock = Clock()
        self.running: dict[str, Request] = {}
        if settings is None:
            return
        shape = PoolShape(
            blocks=blocks - 1,
            block_tokens=BLOCK,
            token_bytes=8,
            pin_cap=pin_cap(
                blocks - 1,
                share=settings.pin_share,
                longest_request=MAX_LEN // BLOCK,
                watermark=0,
            ),
        )
        governor = Governor(settings, shape, clock=self.clock)
        GovernedBlockPool.adopt(
            self.manager.block_pool, governor, PinBook(shape.pin_cap), chained=True
        )
        self.manager.__class__ = GovernedManager
        if settings.sharing is not Sharing.OFF:
            pool = self.manager.block_pool
            pool.library = Library(settings.sharing, SECRET, BLOCK, governor.counters)
            install(pool.library)
        self.desk = Desk(
            self.manager.block_pool,
            hasher=prefix_hasher(ALGORITHM, BLOCK, masked=settings.sharing is not Sharing.OFF),
            longest_request=MAX_LEN // BLOCK,
            most_tokens=MAX_LEN - 1,
            running=self.running.values,
        )

    @property
    def pool(self) -> Any:
        return self.manager.block_pool

    def request(
        self,
        tokens: Sequence[int],
        salt: str | None = None,
        *,
        ticket: str | None = None,
        **more: Any,
    ) -> Request:
        """A request as the engine makes it of what came over the wire."""
        arguments = None if ticket is None else {TICKET_ARGUMENT: ticket}
        return Request(
            request_id=str(next(_numbers)),
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(max_tokens=1, extra_args=arguments),
            pooling_params=None,
            cache_salt=salt,
            block_hasher=self.hasher,
            **more,
        )

    def start(
        self, tokens: Sequence[int], salt: str | None = None, *, ticket: str | None = None
    ) -> tuple[Request, int] | None:
        """Begin a request; its cached tokens, or None if there is no room."""
        request = self.request(tokens, salt, ticket=ticket)
        found, hit, _ = self.manager.get_computed_blocks(request)
        given = self.manager.allocate_slots(
            request, len(tokens) - hit, num_new_computed_tokens=hit, new_computed_blocks=found
        )
        if given is None:
            return None
        request.num_computed_tokens = len(tokens)
        self.running[request.request_id] = request
        return request, hit

    def end(self, request: Request) -> None:
        del self.running[request.request_id]
        self.manager.free(request)

    def run(
        self, tokens: Sequence[int], salt: str | None = None, *, ticket: str | None = None
    ) -> int:
        """A request from start to end; its cached tokens."""
        started = self.start(tokens, salt, ticket=ticket)
        assert started is not None, "no room"
        self.end(started[0])
        return started[1]

    def ask(self, ask: str, **arguments: Any) -> dict[str, Any]:
        return self.desk.answer({"ask": ask, **arguments})

    def pin(self, name: str, tokens: Sequence[int], **more: Any) -> dict[str, Any]:
        return self.ask("pin", prefix={"name": name, "token_ids": list(tokens), **more})

    def check(self) -> None:
        """Every block is in one place, counts add up, pins are held."""
        pool, queue = self.pool, self.pool.free_block_queue
        held = [b for b in pool.blocks if b.ref_cnt and not b.is_null]
        free = queue.get_all_free_blocks()
        assert len(free) == queue.num_free_blocks
        assert not {b.block_id for b in held} & {b.block_id for b in free}
        assert len(held) + len(free) == len(pool.blocks) - 1
        of_requests = {
            b.block_id
            for request in self.running.values()
            for b in self.manager.get_blocks(request.request_id).blocks[0]
        }
        pinned = {b.block_id for b in pool.pinned_block_of.values()}
        assert {b.block_id for b in held} == of_requests | pinned
        assert pool.pinned_idle == len(pinned - of_requests)
        assert sum(pool.is_pinned) == len(pinned) <= pool.pins.cap
        cached = {b.block_id for b in pool.blocks if b.block_hash is not None}
        assert cached == {
            b.block_id for b in pool.blocks if not b.is_null and pool.governor.knows(b.block_id)
        }
        owned = pool.governor.owners.blocks
        assert sum(owned.values()) == len(cached) and min(owned.values(), default=0) >= 0
        parts = self.ask("state")["blocks"]
        assert (
            parts["total"]
            == parts["pinned"] + parts["in_flight"] + parts["cached"] + parts["blank"]
        )
        usage = len(of_requests) / (len(pool.blocks) - 1)
        assert abs(pool.get_usage() - usage) < 1e-9


def prompts(seed: int, number: int) -> Iterator[list[int]]:
    """Requests over a few common beginnings, most of them with a tail of their own."""
    rng = random.Random(seed)
    bases = [[rng.randrange(100) for _ in range(rng.randrange(4, 40))] for _ in range(6)]
    for _ in range(number):
        base = bases[int(len(bases) * rng.random() ** 2)]
        tail = [rng.randrange(100) for _ in range(rng.randrange(1, 20))]
        whole = base[: rng.choice([len(base), rng.randrange(1, len(base) + 1)])] + tail
        if rng.random() < 0.2:
            bases[rng.randrange(len(bases))] = whole[:40]
        yield whole[: MAX_LEN - 1]
