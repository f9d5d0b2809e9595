"""Deployments: what a target is, how its server starts, where versions and rules go."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from prefixctl.config.fields import BlockSize, FiniteJson
from prefixctl.core.blocks import DEFAULT_BLOCK_SIZE
from prefixctl.yamlfile import StrictModel


class TargetConfig(StrictModel):
    """A named deployment: everything that changes KV values."""

    model: str = Field(description="Model name as served, or a local folder.")
    revision: str | None = Field(default=None, description="Revision of the model.")
    weights_fingerprint: str | None = Field(
        default=None, description="Digest that names the weights; from `config.json` if omitted."
    )
    tokenizer: str | None = Field(
        default=None,
        description="Folder with tokenizer.json, or the address of a server to ask for tokens; "
        "the model's folder if omitted.",
    )
    chat_template: str | None = Field(
        default=None, description="Chat template file; the tokenizer's own if omitted."
    )
    chat_template_kwargs: dict[str, FiniteJson] = Field(
        default_factory=dict, description="Keyword arguments for the chat template."
    )
    adapter_digest: str | None = Field(default=None, description="Digest of the LoRA adapter.")
    dtype: str = Field(default="auto", description="Data type of weights and activations.")
    kv_dtype: str = Field(
        default="auto", description="Data type of the KV cache; auto follows `dtype`."
    )
    block_size: BlockSize = Field(
        default=DEFAULT_BLOCK_SIZE,
        description="Tokens in a KV block; a multiple of 32 on a CPU host.",
    )
    hash_algorithm: Literal["sha256", "sha256_cbor"] = Field(
        default="sha256_cbor", description="The engine's block hash."
    )
    hash_seed: str | None = Field(
        default=None, description="PYTHONHASHSEED of the server; the engine's default if omitted."
    )
    servers: tuple[str, ...] = Field(
        default=(), description="Base addresses of the replicas, for warm and probe."
    )
    parameters: dict[str, str] = Field(
        default_factory=dict, description="Values of deployment-scoped prompt parameters."
    )

    @property
    def model_version(self) -> str:
        """Model and revision, as salts and messages name them."""
        return f"{self.model}@{self.revision}" if self.revision else self.model


class ServerConfig(StrictModel):
    """How `serve` starts vLLM."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port to listen on.")
    served_model_name: str | None = Field(default=None, description="Name that clients use.")
    max_model_len: int | None = Field(default=None, gt=0, description="Longest request in tokens.")
    governed: bool = Field(
        default=True,
        description="Run prefixctl's plugins in the server; false serves stock vLLM.",
    )
    data_parallel_size: int = Field(default=1, ge=1, description="Data-parallel ranks.")
    api_server_count: int = Field(default=1, ge=1, description="API processes.")
    tensor_parallel_size: int = Field(default=1, ge=1, description="Tensor-parallel ranks.")
    kv_cache_gib: float | None = Field(
        default=None,
        gt=0,
        le=2**20,
        description="KV cache of each rank, in GiB; vLLM's choice if omitted.",
    )
    kv_events_endpoint: str | None = Field(
        default=None, description="ZMQ endpoint of KV events, for example tcp://*:5557."
    )
    extra_args: tuple[str, ...] = Field(default=(), description="Further vLLM arguments.")
    api_key_env: str = Field(
        default="VLLM_API_KEY",
        description="Environment variable with the server's API key, for serve, warm and probe.",
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Environment variables for the server; no secrets."
    )


class RegistryConfig(StrictModel):
    """Where published versions live."""

    path: Path = Field(
        default=Path(".prefixctl/registry.db"), description="SQLite file of the registry."
    )
    retention_days: int = Field(
        default=7,
        ge=0,
        le=36_500,
        description="Days that a retired version stays before `gc` removes it.",
    )


class MetricsConfig(StrictModel):
    """Names and thresholds of generated alert rules."""

    selector: str = Field(default="", description='Label matchers for every series: job="vllm".')
    runbook_url: str = Field(
        default="docs/alerts.md#",
        description="Base address of the runbook pages: where your copy of docs/alerts.md lies.",
    )
    set: dict[str, str | int | float] = Field(
        default_factory=dict, description="Changed thresholds and windows: ttft_p99_seconds: 1."
    )
