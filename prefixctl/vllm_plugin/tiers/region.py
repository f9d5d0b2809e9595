"""A worker's part of host memory, and what has to be so before it is mapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion

from prefixctl.vllm_plugin.guard import UngovernableError


class WorkerRegion(SharedOffloadRegion):  # type: ignore[misc]
    """vLLM's region, which the scheduler may have taken the name from; see `spec`."""

    def cleanup(self) -> None:
        """As vLLM's; a name that is gone is not taken away again."""
        self._creator &= Path(self.mmap_path).exists()
        super().cleanup()


def gather_stages(value: int) -> list[int]:
    """A number of every pipeline stage, in a worker; called by all of them at once."""
    import torch.distributed as dist  # noqa: PLC0415 - only where there are stages
    from vllm.distributed.parallel_state import get_pp_group  # noqa: PLC0415

    group = get_pp_group()
    told: list[Any] = [None] * group.world_size
    dist.all_gather_object(told, value, group=group.cpu_group)
    return told


def refuse_uneven_stages(
    row_bytes: int, stages: int, gather: Callable[[int], list[int]] = gather_stages
) -> None:
    """Refuse stages whose parts of a row differ: each would lay out the rows in its own way.

    Args:
        row_bytes: KV bytes of a block in this stage; all its ranks hold as many.
        stages: How many there are.
        gather: Asks all of them.

    Raises:
        UngovernableError: If they differ.
    """
    told = gather(row_bytes) if stages > 1 else [row_bytes]
    if len(set(told)) > 1:
        raise UngovernableError(
            "prefixctl: the pipeline stages of this engine hold KV of different sizes "
            f"({', '.join(f'{each:,}' for each in told)} bytes a block), and one row of host "
            "memory would overlap another's; choose --pipeline-parallel-size so that each stage "
            "has as many layers (or VLLM_PP_LAYER_PARTITION), or serve without `tiers:`"
        )
