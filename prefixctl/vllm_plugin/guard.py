"""Refuse to run on a vLLM that is not the one these plugins were tested with.

Every seam that the plugins rest on is named here with the parameters it must have. The check runs
in each process before anything is governed; a server that would be healthy but ungoverned does
not start.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from prefixctl.engine.release import installed_version

TESTED = ("0.32",)
"""Releases of vLLM that the engine tests ran on."""


class UngovernableError(RuntimeError):
    """This vLLM cannot be governed; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seam:
    """A place of vLLM that a plugin builds on.

    Attributes:
        module: Where it lives.
        name: A dotted name in the module.
        parameters: Parameters that it must have, in this order; None for any attribute.
        why: What rests on it.
    """

    module: str
    name: str
    parameters: tuple[str, ...] | None = None
    why: str

    def fault(self) -> str:
        """What is wrong with it, or an empty string."""
        where = f"{self.module}.{self.name}"
        try:
            found: object = importlib.import_module(self.module)
            for part in self.name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            return f"{where} is gone ({self.why})"
        if self.parameters is None:
            return ""
        if not callable(found):
            return f"{where} is no function any more ({self.why})"
        names = tuple(inspect.signature(found).parameters)
        if names[: len(self.parameters)] != self.parameters:
            return f"{where} takes {', '.join(names)} ({self.why})"
        return ""


_POOL, _MANAGER = "vllm.v1.core.block_pool", "vllm.v1.core.kv_cache_manager"
_UTILS, _SCHEDULER = "vllm.v1.core.kv_cache_utils", "vllm.v1.core.sched.scheduler"
_QUEUE = "FreeKVCacheBlockQueue."

SEAMS: tuple[Seam, ...] = (
    Seam(
        module=_POOL, name="BlockPool.get_cached_block", why="time to live",
        parameters=("self", "block_hash", "kv_cache_group_ids"),
    ),
    Seam(
        module=_POOL, name="BlockPool.cache_full_blocks", why="owners, parents and pins",
        parameters=(
            "self", "request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size",
            "kv_cache_group_id", "block_mask",
        ),
    ),
    Seam(module=_POOL, name="BlockPool.touch", parameters=("self", "blocks"), why="hits"),
    Seam(
        module=_POOL, name="BlockPool.free_blocks", parameters=("self", "ordered_blocks"),
        why="idle blocks",
    ),
    Seam(module=_POOL, name="BlockPool.get_new_blocks", parameters=("self", "num_blocks"),
         why="eviction"),
    Seam(module=_POOL, name="BlockPool.reset_prefix_cache", parameters=("self",), why="pins"),
    Seam(module=_POOL, name="BlockPool.get_num_free_blocks", parameters=("self",), why="pins"),
    Seam(module=_POOL, name="BlockPool.get_usage", parameters=("self",), why="usage"),
    Seam(module=_POOL, name="BlockPool._remove_cached_block_hashes", parameters=("self", "block"),
         why="blocks that lose their content"),
    Seam(module=_POOL, name="BlockPool._emit_block_removed_events",
         parameters=("self", "block_hashes"), why="the event stream"),
    Seam(module=_UTILS, name="KVCacheBlock.block_hash", why="contents of blocks"),
    Seam(module=_UTILS, name="get_block_hash", parameters=("key",), why="contents of blocks"),
    Seam(
        module=_UTILS, name="hash_block_tokens", why="hashes of pinned prefixes",
        parameters=("hash_function", "parent_block_hash", "curr_block_token_ids", "extra_keys"),
    ),
    Seam(module=_UTILS, name="generate_block_hash_extra_keys", why="salts",
         parameters=("request", "start_token_idx", "end_token_idx", "start_mm_idx")),
    *(
        Seam(module=_UTILS, name=_QUEUE + name, parameters=("self", *parameters),
             why="the order of eviction")
        for name, parameters in (
            ("popleft", ()), ("popleft_n", ("n",)), ("remove", ("block",)),
            ("append", ("block",)), ("append_n", ("blocks",)), ("prepend_n", ("blocks",)),
            ("get_all_free_blocks", ()),
        )
    ),
    Seam(module=_MANAGER, name="KVCacheManager.allocate_slots", parameters=("self", "request"),
         why="who a block is given to"),
    Seam(module=_MANAGER, name="KVCacheManager.get_computed_blocks",
         parameters=("self", "request"), why="time to live"),
    Seam(module=_SCHEDULER, name="Scheduler.add_request", parameters=("self", "request"),
         why="owners"),
    Seam(module="vllm.v1.core.sched.async_scheduler", name="AsyncScheduler", why="the scheduler"),
    Seam(module="vllm.v1.engine.core", name="EngineCore", why="the admin routes"),
    Seam(module="vllm.v1.engine.core", name="EngineCoreProc._invoke_utility_method",
         why="the admin routes"),
    Seam(module="vllm.v1.engine.core_client", name="AsyncMPClient.call_utility_all_async",
         parameters=("self", "method", "args"), why="the admin routes"),
    Seam(module="vllm.plugins", name="load_endpoint_plugins", why="the admin routes"),
)  # fmt: skip


def check(seams: Sequence[Seam] = SEAMS) -> None:
    """Do nothing if this vLLM can be governed.

    Raises:
        UngovernableError: If it is outside the tested range, or a seam has changed.
    """
    version = installed_version()
    tested = ", ".join(f"{release}.*" for release in TESTED)
    if version is None:
        raise UngovernableError("prefixctl: vLLM is not installed in this environment")
    if ".".join(version.split("+")[0].split(".")[:2]) not in TESTED:
        raise UngovernableError(
            f"prefixctl governs vLLM {tested}; this is {version}. Install a tested release, or a "
            "newer prefixctl; to serve without governing, set `server: {governed: false}`"
        )
    faults = [fault for seam in seams if (fault := seam.fault())]
    if faults:
        raise UngovernableError(
            f"prefixctl cannot govern this vLLM {version}, although {tested} is tested: it was "
            f"changed. {'; '.join(faults)}. Reinstall vLLM, or serve without governing with "
            "`server: {governed: false}`"
        )
