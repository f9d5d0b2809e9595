"""vLLM's offloading connector, told which model it serves and whose requests it sees."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector

from prefixctl.vllm_plugin.tiers import seams
from prefixctl.vllm_plugin.tiers.material import engine_facts
from prefixctl.vllm_plugin.tiers.origin import name_origin
from prefixctl.vllm_plugin.tiers.settings import settings_of
from prefixctl.vllm_plugin.tiers.spec import ENGINE_FACTS, load_secret


class GovernedConnector(OffloadingConnector):  # type: ignore[misc]
    """The connector that ``--kv-transfer-config`` names."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        seams.check()
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        settings = settings_of(extra)
        extra[ENGINE_FACTS] = engine_facts(
            vllm_config, weights=settings.weights, adapter=settings.adapter
        )
        self._secret = load_secret(settings)
        self._adapters_named = settings.adapter is not None
        super().__init__(vllm_config, role, kv_cache_config)

    def on_new_request(self, request: Any) -> None:
        """Say whose the request is; what the client said of it is dropped."""
        params = name_origin(request, self._secret)
        if request.lora_request is not None and not self._adapters_named:
            # The engine's hash knows an adapter's name and path, not its weights.
            params |= {"max_load_tokens": 0, "max_offload_tokens": 0}
        request.kv_transfer_params = params or None
        super().on_new_request(request)
