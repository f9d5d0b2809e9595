"""vLLM's scheduler over a governed pool, and what the admin routes ask of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefixctl.config import load_config
from prefixctl.core.governing import UTILITY, DeviceSettings, Sharing, pin_cap
from prefixctl.core.pinbook import PinBook
from prefixctl.core.tenancy import Secret
from prefixctl.engine.launch import CONFIG_VARIABLE
from prefixctl.sources.secret import load_secret
from prefixctl.vllm_plugin import guard

guard.check()

from vllm.v1.core.block_pool import BlockPool  # noqa: E402 - after the guard
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.engine.core import EngineCore  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, RSWASpec  # noqa: E402

from prefixctl.vllm_plugin.desk import Below, Desk, prefix_hasher  # noqa: E402
from prefixctl.vllm_plugin.governor import Governor, PoolShape  # noqa: E402
from prefixctl.vllm_plugin.pool import GovernedBlockPool  # noqa: E402
from prefixctl.vllm_plugin.sharing import Library, install  # noqa: E402

CONNECTORS = ("OffloadingConnector", "GovernedConnector")
"""Connectors that key blocks by the request's hashes, and so honour salts."""
CONFIG_KEY = "prefixctl"
"""Where the settings stand in vLLM's `additional_config`."""


class GovernedManager(KVCacheManager):  # type: ignore[misc]
    """vLLM's cache manager, which says who blocks are looked up for and given to."""

    block_pool: GovernedBlockPool

    def get_computed_blocks(self, request: Any) -> Any:
        """As vLLM's; what hangs on a block that was too old goes with it."""
        pool = self.block_pool
        pool.found_stale = False
        found = super().get_computed_blocks(request)
        if pool.found_stale and pool.chained:
            pool.empty_behind(request.block_hashes[found[1] // pool.hash_block_size :])
        return found

    def allocate_slots(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """As vLLM's."""
        pool = self.block_pool
        pool.requester = pool.owners_of(request)
        try:
            return super().allocate_slots(request, *args, **kwargs)
        finally:
            pool.requester = None


class Governed:
    """What is added to vLLM's schedulers."""

    desk: Desk
    requests: dict[str, Any]
    kv_cache_manager: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = DeviceSettings.from_json(_settings(self.vllm_config.additional_config))  # type: ignore[attr-defined]
        self.desk = _govern(self, settings)
        setattr(EngineCore, UTILITY, _answer)

    def add_request(self, request: Any) -> None:
        """As vLLM's; notices who would have hit whom."""
        if request.request_id not in self.requests and request.prompt_token_ids:
            governor = self.desk.governor
            owners = self.kv_cache_manager.block_pool.owners_of(request)
            size = governor.shape.block_tokens
            if len(owners) == 1 and len(request.prompt_token_ids) >= size:
                governor.see_first_block(request.prompt_token_ids[:size], owners[0])
        super().add_request(request)  # type: ignore[misc]


class GovernedScheduler(Governed, Scheduler):  # type: ignore[misc]
    """Governed, without asynchronous scheduling."""


class GovernedAsyncScheduler(Governed, AsyncScheduler):  # type: ignore[misc]
    """Governed, with asynchronous scheduling: vLLM's default."""


def make_scheduler(**kwargs: Any) -> Governed:
    """The scheduler for ``--scheduler-cls``, as asynchronous as the engine is."""
    asynchronous = kwargs["vllm_config"].scheduler_config.async_scheduling
    return GovernedAsyncScheduler(**kwargs) if asynchronous else GovernedScheduler(**kwargs)


def _settings(additional_config: object) -> Mapping[str, object]:
    if not isinstance(additional_config, dict) or CONFIG_KEY not in additional_config:
        raise guard.UngovernableError(
            "prefixctl's scheduler was started without its settings: start the server with "
            "`prefixctl serve`, or with the command that `prefixctl serve --print` shows"
        )
    found: Mapping[str, object] = additional_config[CONFIG_KEY]
    return found


def _govern(scheduler: Any, settings: DeviceSettings) -> Desk:
    """Put a governor over the scheduler's pool."""
    manager = scheduler.kv_cache_manager
    pool, groups = manager.block_pool, scheduler.kv_cache_config.kv_cache_groups
    if not manager.enable_caching:
        raise guard.UngovernableError(
            "prefix caching is off, so there is nothing to govern: set prefix_cache.enabled, or "
            "`server: {governed: false}`"
        )
    _refuse_strangers(scheduler)
    blocks = pool.num_gpu_blocks - 1
    block_tokens = scheduler.block_size
    single = len(groups) == 1
    spec = groups[0].kv_cache_spec
    # A window frees the front of a chain first, whatever the class derives from.
    chained = single and isinstance(spec, FullAttentionSpec) and not isinstance(spec, RSWASpec)
    chained = chained and getattr(spec, "sliding_window", None) is None
    longest = _longest_request(scheduler)
    shape = PoolShape(
        blocks=blocks,
        block_tokens=block_tokens,
        token_bytes=_token_bytes(scheduler),
        pin_cap=pin_cap(
            blocks,
            share=settings.pin_share,
            longest_request=longest,
            watermark=manager.watermark_blocks,
        )
        if chained
        else 0,
    )
    governor = Governor(settings, shape, clock=time.monotonic)
    pins = PinBook(shape.pin_cap)
    governed = GovernedBlockPool.adopt(pool, governor, pins, chained=chained)
    manager.__class__ = GovernedManager
    shares = settings.sharing is not Sharing.OFF
    if shares:
        governed.library = Library(settings.sharing, _secret(), block_tokens, governor.counters)
        install(governed.library)
    below = _below(scheduler.connector)
    return Desk(
        governed,
        hasher=prefix_hasher(
            scheduler.cache_config.prefix_caching_hash_algo,
            block_tokens,
            masked=settings.sharing is Sharing.ON,
        ),
        why_no_pins=""
        if chained
        else "this model has sliding-window or several kinds of "
        "attention: pins are for full attention only",
        longest_request=longest,
        most_tokens=scheduler.max_model_len - 1,
        below=below,
        strangers_below=scheduler.connector is not None and (below is None or below.has_strangers),
        running=scheduler.requests.values,
    )


def _below(connector: Any) -> Below | None:
    """The tiers below the device, if they are ours; their modules are imported for them only."""
    if type(connector).__name__ != "GovernedConnector":
        return None
    from prefixctl.vllm_plugin.tiers.below import TiersBelow  # noqa: PLC0415

    return TiersBelow.of(connector)


def _refuse_strangers(scheduler: Any) -> None:
    """Refuse pools, managers and connectors that these plugins were not tested with."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    transfer = scheduler.vllm_config.kv_transfer_config
    connector = None if transfer is None else transfer.kv_connector
    found = ""
    if type(pool) is not BlockPool or type(manager) is not KVCacheManager:
        found = f"a {type(pool).__name__} under a {type(manager).__name__}"
    elif any("HiSparse" in type(g.kv_cache_spec).__name__ for g in
             scheduler.kv_cache_config.kv_cache_groups):  # fmt: skip
        found = "HiSparse attention"
    elif connector is not None and connector not in CONNECTORS:
        found = f"the connector {connector}: it is not known to honour salts"
    if found:
        raise guard.UngovernableError(
            f"prefixctl cannot govern {found}; serve without it, or with "
            "`server: {governed: false}`"
        )


def _secret() -> Secret:
    """The tenancy secret, from where `serve` said that the configuration is."""
    path = os.environ.get(CONFIG_VARIABLE)
    if path is None:
        raise guard.UngovernableError(
            f"sharing needs the tenancy secret, and ${CONFIG_VARIABLE} does not name "
            "prefixctl.yaml: start the server with `prefixctl serve`"
        )
    secret = load_secret(load_config(Path(path)), os.environ)
    if secret is None:
        raise guard.UngovernableError(f"sharing needs the tenancy secret, and {path} names none")
    return secret


def _longest_request(scheduler: Any) -> int:
    """Blocks that a request of the longest length holds at most."""
    lookahead = scheduler.num_lookahead_tokens
    total = 0
    for manager in scheduler.kv_cache_manager.coordinator.single_type_managers:
        needed = -(-(scheduler.max_model_len + lookahead) // manager.block_size)
        most = manager.max_admission_blocks_per_request
        total += needed if most is None else min(needed, most)
    return total


def _token_bytes(scheduler: Any) -> int:
    """KV bytes of a token over all layers and tensor-parallel ranks."""
    total = 0.0
    for group in scheduler.kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        # A group of layers that differ in size states the sum, any other the size of one.
        layers = 1 if hasattr(spec, "kv_cache_specs") else len(group.layer_names)
        total += spec.page_size_bytes * layers / spec.block_size
    return int(total) * int(scheduler.parallel_config.tensor_parallel_size)


def _answer(core: Any, question: str) -> str:
    """Called in the engine's process by the routes; see `Desk.answer`."""
    return json.dumps(core.scheduler.desk.answer(json.loads(question)))
