"""vLLM's offloading connector, told which model it serves and whose requests it sees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.logger import init_logger

from prefixctl.engine.weights import fingerprint
from prefixctl.errors import InputError
from prefixctl.vllm_plugin.guard import UngovernableError
from prefixctl.vllm_plugin.tiers import seams, updates
from prefixctl.vllm_plugin.tiers.host import GovernedHostTier
from prefixctl.vllm_plugin.tiers.material import engine_facts
from prefixctl.vllm_plugin.tiers.nvme import NvmeTier
from prefixctl.vllm_plugin.tiers.origin import name_origin
from prefixctl.vllm_plugin.tiers.settings import settings_of
from prefixctl.vllm_plugin.tiers.spec import ENGINE_FACTS, load_secret

logger = init_logger(__name__)

ONE_HOST = ("mp", "uni")


class GovernedConnector(OffloadingConnector):  # type: ignore[misc]
    """The connector that ``--kv-transfer-config`` names."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        seams.check()
        refuse_several_hosts(vllm_config.parallel_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        settings = settings_of(extra)
        if role == KVConnectorRole.SCHEDULER:
            extra[ENGINE_FACTS] = engine_facts(
                vllm_config, weights=settings.weights, adapter=settings.adapter
            )
        else:
            extra.setdefault(ENGINE_FACTS, {})  # blocks are named by the scheduler alone
        self._secret = load_secret(settings)
        self._adapter = settings.adapter
        self._adapters: dict[tuple[str, int], bool] = {}
        self._stale: Counter[int] = Counter()
        self._replaced = False
        super().__init__(vllm_config, role, kv_cache_config)
        if role == KVConnectorRole.SCHEDULER:
            updates.watch()
            warn_if_small(self.scheduler, vllm_config.model_config.max_model_len)

    def on_new_request(self, request: Any) -> None:
        """Say whose the request is; what the client said of it is dropped."""
        params = name_origin(request, self._secret)
        if request.lora_request is not None and not self._is_named(request.lora_request):
            # The engine's hash knows an adapter's name and path, not its weights.
            params |= {"max_load_tokens": 0, "max_offload_tokens": 0}
        request.kv_transfer_params = params or None
        super().on_new_request(request)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """As vLLM's; requests that run now wait for nothing in host memory."""
        meta = super().build_connector_meta(scheduler_output)
        self._host.release_served(scheduler_output.num_scheduled_tokens)
        return meta

    def reset_cache(self) -> bool | None:
        """As vLLM's; nothing comes up from below until the workers have let go of the old rows.

        A copy between device and host that a worker has put off or not ended goes on after a
        reset, over a row that is free by then. vLLM keeps the workers' own copies behind it, and
        not what is read from a disk in this process.
        """
        jobs = self.scheduler._jobs  # noqa: SLF001 - see seams
        self._stale.update({job: status.pending_count for job, status in jobs.items()})
        self._fence()
        done: bool | None = super().reset_cache()
        return done

    def update_connector_output(self, connector_output: Any) -> None:
        """As vLLM's; see `reset_cache`."""
        told = connector_output.kv_connector_worker_meta
        if self._stale and told is not None:
            for job, count in told.completed_jobs.items():
                if job in self._stale:
                    self._stale[job] -= count
            self._stale = +self._stale
            self._fence()
        super().update_connector_output(connector_output)

    def weights_replaced(self, why: str, *, adapter: bool = False) -> None:
        """The weights, or an adapter's, are no longer those that the server started with."""
        if adapter and self._adapter is None:
            return  # requests with adapters skip the tiers
        self._replaced = True
        self._fence()
        for tier in self.scheduler.manager.secondary_tiers:
            if isinstance(tier, NvmeTier):
                tier.close_off(why)

    def _is_named(self, lora: Any) -> bool:
        """Whether these are the adapter's weights that the configuration names."""
        key = lora.lora_path, lora.lora_int_id
        if key not in self._adapters:
            try:
                found = fingerprint(Path(lora.lora_path))
            except (InputError, OSError):
                found = ""
            self._adapters[key] = bool(found) and found == self._adapter
            if not self._adapters[key]:
                logger.info(
                    "prefixctl: requests with adapter '%s' skip the tiers: its digest is %s, and "
                    "targets.<name>.adapter_digest is %s",
                    lora.lora_name, found or "not to be had", self._adapter,
                )  # fmt: skip
        return self._adapters[key]

    def _fence(self) -> None:
        """Whether anything may come up from below, be it from vLLM's own tiers."""
        self._host.fenced = self._replaced or bool(self._stale)

    @property
    def _host(self) -> GovernedHostTier:
        tier: GovernedHostTier = self.scheduler.manager.primary_tier
        return tier


def warn_if_small(scheduler: Any, longest: int) -> None:
    """Say so if host memory holds no request of the longest length, in tokens."""
    groups = scheduler.config.kv_group_configs
    rows = scheduler.manager.primary_tier._num_chunks  # noqa: SLF001 - see seams
    tokens = rows // len(groups) * min(group.tokens_per_chunk for group in groups)
    if tokens < longest:
        logger.warning(
            "prefixctl: host memory holds %d tokens, and a request may have %d; of a longer prefix "
            "only the head is stored, there and on the disk: make tiers.host_gib larger",
            tokens, longest,
        )  # fmt: skip


def refuse_several_hosts(parallel: Any) -> None:
    """Refuse ranks that may run on other hosts: their part of a row would be zeros here.

    Args:
        parallel: vLLM's `ParallelConfig`.

    Raises:
        UngovernableError: If all ranks of this engine are not on this host for certain.
    """
    backend, nodes = parallel.distributed_executor_backend, parallel.nnodes_within_dp
    if nodes == 1 and backend in ONE_HOST:
        return
    found = f"{nodes} nodes" if nodes > 1 else f"executor '{backend}'"
    raise UngovernableError(
        f"prefixctl: `tiers:` needs all ranks of an engine on one host, and this one has {found}: "
        "host memory is each host's own, so blocks would be stored in part. Serve with the `mp` "
        "executor on one node (--distributed-executor-backend mp), one replica on each, or "
        "without `tiers:`"
    )
