"""What the tiers build on in vLLM 0.32; checked before anything is stored."""

from __future__ import annotations

from prefixctl.vllm_plugin import guard
from prefixctl.vllm_plugin.guard import Seam

_OFFLOAD = "vllm.v1.kv_offload"
_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1"

SEAMS = (
    Seam(
        module=f"{_CONNECTOR}.offloading_connector",
        name="OffloadingConnector.__init__",
        parameters=("self", "vllm_config", "role", "kv_cache_config"),
        why="the connector names the model to the tiers",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading_connector",
        name="OffloadingConnector.on_new_request",
        parameters=("self", "request"),
        why="the owner of a request's blocks",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading_connector",
        name="OffloadingConnector.build_connector_meta",
        parameters=("self", "scheduler_output"),
        why="what waits for the disk",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading_connector",
        name="OffloadingConnector.reset_cache",
        parameters=("self",),
        why="copies under way at a reset",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading_connector",
        name="OffloadingConnector.update_connector_output",
        parameters=("self", "connector_output"),
        why="copies under way at a reset",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading.scheduler",
        name="TransferJobStatus.__init__",
        parameters=("self", "req_id", "pending_count"),
        why="copies under way at a reset",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading.common",
        name="OffloadingWorkerMetadata.__init__",
        parameters=("self", "completed_jobs"),
        why="copies under way at a reset",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading.scheduler",
        name="RequestOffloadState.__init__",
        parameters=("self", "config", "req", "req_context"),
        why="requests that have ended and are still to be stored",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading.scheduler",
        name="GroupOffloadConfig.hashes_per_chunk",
        why="pins in the tiers",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading.scheduler",
        name="GroupOffloadConfig.sliding_window_size_in_chunks",
        why="pins in the tiers",
    ),
    *(
        Seam(module="vllm.v1.engine.core", name=f"EngineCore.{name}",
             parameters=("self", *parameters), why="weights that are replaced")
        for name, parameters in (
            ("collective_rpc", ("method",)), ("sleep", ("level",)), ("add_lora", ("lora_request",)),
            ("set_weight_version", ("weight_version",)),
        )
    ),
    Seam(
        module="vllm.config.parallel",
        name="ParallelConfig.nnodes_within_dp",
        why="ranks on other hosts",
    ),
    Seam(
        module="vllm.distributed.parallel_state",
        name="get_pp_group",
        parameters=(),
        why="stages whose parts of a block differ",
    ),
    Seam(
        module=f"{_OFFLOAD}.tiering.spec",
        name="TieringOffloadingSpec.get_manager",
        parameters=("self",),
        why="the host tier and what lies below it",
    ),
    Seam(
        module=f"{_OFFLOAD}.tiering.spec",
        name="TieringOffloadingSpec.get_worker",
        parameters=("self", "kv_caches"),
        why="copies between device and host",
    ),
    Seam(
        module=f"{_OFFLOAD}.tiering.spec",
        name="TieringOffloadingSpec.create_worker",
        parameters=("self", "kv_caches"),
        why="the host tier's memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.shared_offload_region",
        name="SharedOffloadRegion.cleanup",
        parameters=("self",),
        why="the host tier's memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.tiering.manager",
        name="TieringOffloadingManager._initiate_promotion",
        parameters=("self", "tier_idx", "key", "req_context"),
        why="room in host memory for what comes from the disk",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.manager",
        name="CPUOffloadingManager.prepare_load",
        parameters=("self", "keys", "req_context"),
        why="room in host memory for what comes from the disk",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.manager",
        name="CPUOffloadingManager.on_request_finished",
        parameters=("self", "req_context"),
        why="room in host memory for what comes from the disk",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.shared_offload_region",
        name="SharedOffloadRegion.__init__",
        parameters=("self", "engine_id", "num_chunks", "rank", "kv_bytes_per_chunk",
                    "cpu_page_size"),
        why="the host tier's memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.shared_offload_region",
        name="SharedOffloadRegion.create_next_worker_view",
        parameters=("self", "tensor_page_size"),
        why="one rank's part of a block in host memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.base",
        name="OffloadingWorker.submit_load",
        parameters=("self", "job_id", "src_spec", "dst_spec"),
        why="copies on a CPU-only host",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.manager",
        name="CPUOffloadingManager.lookup",
        parameters=("self", "key", "req_context"),
        why="time to live in host memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.manager",
        name="CPUOffloadingManager.prepare_store",
        parameters=("self", "keys", "req_context"),
        why="what leaves host memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.manager",
        name="CPUOffloadingManager._free_chunk",
        parameters=("self", "chunk"),
        why="removing a tenant from host memory",
    ),
    Seam(
        module=f"{_CONNECTOR}.offloading.scheduler",
        name="OffloadingConnectorScheduler.__init__",
        parameters=("self", "spec", "vllm_config", "kv_cache_config"),
        why="pins in the tiers",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.policies.base",
        name="CachePolicy.evict",
        parameters=("self", "n", "protected"),
        why="eviction from host memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.policies.base",
        name="CachePolicy.on_request_finished",
        parameters=("self", "key_groups", "insertion_only_keys", "reused_keys", "req_context"),
        why="what was used in host memory",
    ),
    Seam(
        module=f"{_OFFLOAD}.cpu.policies.base",
        name="CachePolicy.on_store_miss",
        parameters=("self", "keys", "req_context"),
        why="which block hangs on which",
    ),
    Seam(
        module=f"{_OFFLOAD}.tiering.base",
        name="SecondaryTierManager.__init__",
        parameters=("self", "offloading_spec", "primary_kv_view", "tier_type",
                    "backpressure_detector"),
        why="the NVMe tier",
    ),
    Seam(
        module=f"{_OFFLOAD}.tiering.factory",
        name="SecondaryTierFactory.create_secondary_tier",
        parameters=("tier_config", "primary_kv_view", "offloading_spec"),
        why="back-pressure of the NVMe tier",
    ),
    Seam(
        module=f"{_OFFLOAD}.tiering.backpressure",
        name="BackpressureDetector.should_store",
        parameters=("self", "num_blocks"),
        why="back-pressure of the NVMe tier",
    ),
    Seam(
        module=f"{_OFFLOAD}.base",
        name="ReqContext.get_offload_key_position",
        parameters=("self", "key"),
        why="the order of a request's blocks",
    ),
)  # fmt: skip


def check() -> None:
    """Refuse a vLLM that is not the tested one; errors as in `guard.check`."""
    guard.check(SEAMS)
