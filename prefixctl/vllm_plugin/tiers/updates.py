"""Weights that are replaced in a running engine: its blocks are no longer those of the disk.

What the blocks of the disk depend on is fixed when the server starts. Whatever may change the
weights after that comes to `EngineCore` by name, in the process that holds the scheduler: calls
to the workers, a deep sleep that drops the weights, an adapter that is loaded again in place.
What is done to a worker's memory from outside cannot be seen from here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from vllm.v1.engine.core import EngineCore

HARMLESS = frozenset(
    {
        "checkpoint_prepare",
        "checkpoint_restore",
        "compute_weight_checksums",
        "get_model_inspection",
        "init_weight_transfer_engine",
        "release_late_interaction_query_cache",
        "shutdown_weight_transfer_engine",
        "update_max_model_len",
    }
)
"""Calls to the workers that vLLM itself makes and that leave the weights alone; of any other,
a function or a method of the operator's own, nobody knows."""


def watch() -> None:
    """Tell an engine's connector of whatever may replace weights; once for each process."""
    for name, reason in _REASONS.items():
        stock = getattr(EngineCore, name)
        if not hasattr(stock, "prefixctl_stock"):
            setattr(EngineCore, name, _watched(stock, reason, adapter=name == "add_lora"))


def _watched(
    stock: Callable[..., Any], reason: Callable[..., str], *, adapter: bool
) -> Callable[..., Any]:
    @wraps(stock)  # vLLM converts arguments by the signature
    def watched(core: Any, *args: Any, **kwargs: Any) -> Any:
        why = reason(*args, **kwargs)
        scheduler = getattr(core, "scheduler", None)
        told = getattr(getattr(scheduler, "connector", None), "weights_replaced", None)
        if why and told is not None:
            told(why, adapter=adapter)
        return stock(core, *args, **kwargs)

    watched.prefixctl_stock = stock  # type: ignore[attr-defined]
    return watched


def _of_call(method: Any, *_: Any, **__: Any) -> str:
    if isinstance(method, str) and method in HARMLESS:
        return ""
    name = method if isinstance(method, str) else getattr(method, "__name__", "a function")
    return f"{name} was called on the workers"


def _of_sleep(level: int = 1, *_: Any, **__: Any) -> str:
    return f"the engine slept at level {level}, which drops the weights" if level > 1 else ""


def _of_version(weight_version: str, *_: Any, **__: Any) -> str:
    return f"the weights were declared to be version {weight_version}"


def _of_adapter(lora_request: Any, *_: Any, **__: Any) -> str:
    again = getattr(lora_request, "load_inplace", False)
    return f"adapter {lora_request.lora_name} was loaded again in place" if again else ""


_REASONS: dict[str, Callable[..., str]] = {
    "collective_rpc": _of_call,
    "sleep": _of_sleep,
    "set_weight_version": _of_version,
    "add_lora": _of_adapter,
}
