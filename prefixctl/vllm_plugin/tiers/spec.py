"""The offloading spec: vLLM's tiers, with our worker where there is no GPU."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from prefixctl.core.tenancy import Secret
from prefixctl.core.tiering import TierSettings
from prefixctl.vllm_plugin.tiers import metrics, seams
from prefixctl.vllm_plugin.tiers.cpu_worker import HostCopyWorker
from prefixctl.vllm_plugin.tiers.host import GovernedHostTier
from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy
from prefixctl.vllm_plugin.tiers.region import WorkerRegion, refuse_uneven_stages
from prefixctl.vllm_plugin.tiers.settings import rules_of, settings_of

logger = init_logger(__name__)

ENGINE_FACTS = "prefixctl_engine_facts"
"""Where the connector leaves what it knows of the model."""


class GovernedTieringSpec(TieringOffloadingSpec):  # type: ignore[misc]
    """Host memory with a governed policy, and the NVMe tier below it.

    Attributes:
        tier_settings: Ours.
        engine_facts: What names the model; see `material`.
        secret: The tenancy secret, None if there is none.
    """

    def __init__(self, config: Any) -> None:
        seams.check()
        super().__init__(config)
        self.tier_settings: TierSettings = settings_of(config.extra_config)
        self.engine_facts: dict[str, Any] = config.extra_config[ENGINE_FACTS]
        self.secret = load_secret(self.tier_settings)
        self._worker: Any = None
        GovernedCachePolicy.rules = rules_of(self.tier_settings, config)
        self.eviction_policy = GovernedCachePolicy.__name__
        self.cache_policy_module_path = GovernedCachePolicy.__module__

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        """VLLM's series and ours."""
        return {**super().build_metric_definitions(extra_config), **metrics.definitions()}

    def get_manager(self) -> Any:
        """VLLM's manager of the tiers, with a governed host tier.

        By now every worker has mapped the host tier's file (the engine makes its workers before
        its scheduler), so its name can go: no way to die leaves it behind.
        """
        first = self._manager is None
        manager = super().get_manager()
        if first:
            GovernedHostTier.adopt(manager.primary_tier)
        region = self._scheduler_mmap
        if first and region is not None and not region._creator:  # noqa: SLF001 - see seams
            with suppress(FileNotFoundError):
                Path(region.mmap_path).unlink()
        return manager

    def get_worker(self, kv_caches: Any) -> Any:
        """VLLM's worker on a GPU, ours on a CPU-only host.

        Raises:
            UngovernableError: If pipeline stages differ; see `refuse_uneven_stages`.
        """
        if self._worker is None:
            refuse_uneven_stages(
                self.config.worker_kv_bytes_per_block, self.config.parallel.pp_size
            )
        if current_platform.is_cuda_alike() or current_platform.is_xpu():
            return super().get_worker(kv_caches)
        if self._worker is None:
            self._worker = self._host_worker(kv_caches)
            logger.info(
                "prefixctl: host tier by copies in this process, %d chunks", self.num_chunks
            )
        return self._worker

    def create_worker(self, kv_caches: Any) -> Any:
        """VLLM's worker on a GPU, over a region that may have lost its name."""
        worker = super().create_worker(kv_caches)
        worker._mmap_region.__class__ = WorkerRegion  # noqa: SLF001 - see seams
        return worker

    def _host_worker(self, kv_caches: Any) -> HostCopyWorker:
        if self.config.canonical_layout or self.replicated_layout:
            raise ValueError(
                "canonical_layout and replicated ranks are not supported on a CPU-only host"
            )
        region = WorkerRegion(
            engine_id=self.config.engine_id,
            num_chunks=self.num_chunks,
            rank=self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        try:
            return HostCopyWorker(kv_caches, self.blocks_per_chunk, region)
        except Exception:
            region.cleanup()
            raise


def load_secret(settings: TierSettings) -> Secret | None:
    """The tenancy secret, None if there is none."""
    if settings.secret_file is not None:
        return Secret(Path(settings.secret_file).read_bytes().strip())
    text = os.environ.get(settings.secret_env, "").strip()
    return Secret(text.encode()) if text else None
