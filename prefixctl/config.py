"""prefixctl.yaml as strict, immutable models.

Relative paths are read from the folder that holds the file.
"""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PrivateAttr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from prefixctl.core.blocks import DEFAULT_BLOCK_SIZE
from prefixctl.core.prompt import GOVERNED_KINDS, SectionKind, Volatility
from prefixctl.errors import ConfigError
from prefixctl.yamlfile import StrictModel, did_you_mean, is_there, load_model, read_bytes

CONFIG_NAME = "prefixctl.yaml"


def is_name(value: str) -> bool:
    """Whether something is the name of a prompt, a target or a tenant."""
    good = all(c.isalnum() or c in "-_." for c in value)
    return bool(value) and good and not value.startswith(".")


def valid_name(value: str) -> str:
    """The name of a prompt or target, if it is one; ValueError if not."""
    if not is_name(value):
        raise ValueError(f"'{value}' is no name: letters, digits, '-', '_' and '.'")
    return value


def _finite(value: JsonValue) -> JsonValue:
    json.dumps(value, allow_nan=False)
    return value


FiniteJson = Annotated[JsonValue, AfterValidator(_finite)]
Name = Annotated[str, AfterValidator(valid_name)]


def _scope(value: object) -> object:
    labels = [v.label for v in Volatility]
    if value not in labels:
        raise ValueError(f"'{value}' is no scope; choose from {', '.join(labels)}")
    return Volatility[str(value).upper()]


Scope = Annotated[
    Volatility,
    BeforeValidator(_scope),
    WithJsonSchema({"enum": [v.label for v in Volatility], "type": "string"}),
]
"""How often a value changes, by the word for it."""
Patterns = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""One glob pattern or several."""


class EvictConfig(StrictModel):
    """How idle cached blocks are evicted."""

    policy: Literal["lru", "lru_freq", "cost_aware"] = Field(
        default="lru", description="Which idle block goes first; lru is vLLM's own order."
    )
    ttl_hours: float | None = Field(
        default=24,
        gt=0,
        description="How long an idle block is found; null for ever.",
    )
    tenant_shares: bool = Field(
        default=False,
        description="Share idle blocks out, so that one tenant cannot push out the others.",
    )
    max_block_mb: int = Field(
        default=512, gt=0, description="KV megabytes of one section that are governed at most."
    )


class PinsConfig(StrictModel):
    """How much may be pinned."""

    share: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="The part of the device pool that may be pinned at most; a request of "
        "`max_model_len` always has room beside it.",
    )
    live: bool = Field(
        default=False,
        description="Servers pin the live versions by themselves, at start and after each publish; "
        "`/prefixctl/ready` says when they are resident.",
    )


class PrefixCacheConfig(StrictModel):
    """What is governed and how."""

    enabled: bool = Field(default=True, description="Off serves with prefix caching disabled.")
    block_by: Literal["token"] = Field(
        default="token", description="KV blocks are counted on token boundaries."
    )
    blocks: tuple[SectionKind, ...] = Field(
        default=GOVERNED_KINDS, description="Section types that may be part of a governed prefix."
    )
    versioned: bool = Field(
        default=True, description="Whether a changed prompt must be bumped before it is published."
    )
    min_tokens: int = Field(
        default=0, ge=0, description="Shared tokens below which a prompt is not governed."
    )
    evict: EvictConfig = Field(default=EvictConfig(), description="Eviction.")
    pins: PinsConfig = Field(default=PinsConfig(), description="Pinned prefixes.")
    fallback: Literal["partial", "refuse"] = Field(
        default="partial",
        description="A larger section: govern it up to the cap, or refuse it.",
    )

    @field_validator("blocks")
    @classmethod
    def _governable(cls, kinds: tuple[SectionKind, ...]) -> tuple[SectionKind, ...]:
        for kind in kinds:
            if kind not in GOVERNED_KINDS:
                known = ", ".join(k.value for k in GOVERNED_KINDS)
                raise ValueError(f"{kind.value} is never shared; choose from {known}")
        return kinds


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
    block_size: int = Field(
        default=DEFAULT_BLOCK_SIZE,
        gt=0,
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


ANONYMOUS = "anonymous"
"""The tenant of requests that name none, where they are served."""
ALL_TENANTS = "*"


def _tenant(value: str) -> str:
    return value if value == ALL_TENANTS else valid_name(value)


class GroupConfig(StrictModel):
    """Tenants that share the public prefixes of some prompts."""

    tenants: tuple[Annotated[str, AfterValidator(_tenant)], ...] = Field(
        description="Its tenants; `*` stands for all that no other group names."
    )
    prompts: tuple[Name, ...] = Field(
        default=(), description="Prompts whose prefix is shared. Others may not use their keys."
    )


class TenancyConfig(StrictModel):
    """Where the tenancy secret lies; the secret itself never stands in this file."""

    secret_file: Path | None = Field(
        default=None, description="File with the tenancy secret (at least 16 bytes)."
    )
    secret_env: str = Field(
        default="PREFIXCTL_SECRET", description="Environment variable with the tenancy secret."
    )
    epoch: int = Field(default=0, ge=0, description="Number of the salt rotation period.")
    sharing: Literal["off", "shadow", "on"] = Field(
        default="off",
        description="Whether the tenants of a group share the public prefixes of its prompts; "
        "shadow only counts what would be shared. Needs the gateway.",
    )
    groups: dict[Name, GroupConfig] = Field(
        default_factory=dict,
        description="Share groups. A tenant that no group names is a group of its own.",
    )

    @model_validator(mode="after")
    def _one_group_each(self) -> Self:
        seen: dict[str, str] = {}
        for name, group in self.groups.items():
            for tenant in group.tenants:
                if tenant in seen:
                    raise ValueError(f"'{tenant}' is in two groups, {seen[tenant]} and {name}")
                seen[tenant] = name
        return self


class RateConfig(StrictModel):
    """How much a tenant may ask for; what is not given is not limited."""

    requests_per_minute: int | None = Field(
        default=None, gt=0, description="Requests in a minute, and in a burst."
    )
    prefill_tokens_per_minute: int | None = Field(
        default=None,
        gt=0,
        description="Prompt tokens that the cache does not hold, in a minute and in a burst.",
    )


class GatewayConfig(StrictModel):
    """The gateway: who a request is from, and what it may do."""

    enabled: bool = Field(
        default=False, description="`serve` puts the gateway in front of the server."
    )
    keys_file: Path | None = Field(
        default=None, description="File with the tenants' API keys, hashed: see `keys add`."
    )
    tenant_header: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Header in which a trusted proxy names the tenant.",
    )
    proxies: tuple[str, ...] = Field(
        default=(), description="Addresses or networks of the proxies that may set that header."
    )
    missing_tenant: Literal["refuse", "anonymous"] = Field(
        default="refuse",
        description="A request of nobody: refuse it, or serve it in the anonymous namespace.",
    )
    rates: RateConfig = Field(default=RateConfig(), description="Limits of every tenant.")
    tenant_rates: dict[Name, RateConfig] = Field(
        default_factory=dict, description="Limits of single tenants, instead."
    )
    max_body_mb: float = Field(default=32, gt=0, description="Largest body of a request.")
    body_seconds: float = Field(
        default=30, gt=0, description="How long a client may take to send its body."
    )
    metrics: Literal["open", "operator"] = Field(
        default="operator",
        description="Who may read `/metrics` from afar; this host always may. operator: whoever "
        "holds the admin token.",
    )
    label_tenants: int = Field(
        default=20, ge=0, description="Tenants with series of their own; the others are one."
    )
    drop_xargs: tuple[str, ...] = Field(
        default=(), description="Further `vllm_xargs` that clients must not set."
    )

    @field_validator("proxies")
    @classmethod
    def _addresses(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            ipaddress.ip_network(value, strict=False)
        return values

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if (self.tenant_header is None) != (not self.proxies):
            raise ValueError("tenant_header and proxies go together")
        return self


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


Mark = Annotated[str, Field(min_length=2, max_length=2, pattern=r"^\S\S$")]


JINJA_MARKS = {"variable": ("{{", "}}"), "block": ("{%", "%}"), "comment": ("{#", "#}")}
"""What Jinja2 puts around a printed value, a statement and a comment."""


class DelimitersConfig(StrictModel):
    """What marks templates instead of Jinja2's own: two characters each."""

    variable: tuple[Mark, Mark] | None = Field(
        default=None, description="Around a printed value, instead of `{{` and `}}`."
    )
    block: tuple[Mark, Mark] | None = Field(
        default=None, description="Around a statement, instead of `{%` and `%}`."
    )
    comment: tuple[Mark, Mark] | None = Field(
        default=None, description="Around a comment, instead of `{#` and `#}`."
    )

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        opening: dict[str, str] = {}
        for name, own in JINJA_MARKS.items():
            start, end = getattr(self, name) or own
            if start == end:
                raise ValueError(f"'{start}' both opens and closes a {name}")
            if start in opening:
                raise ValueError(f"'{start}' opens a {opening[start]} and a {name}")
            opening[start] = name
        return self


class LintPathConfig(StrictModel):
    """What lint and settings do differently for some paths. Later entries win."""

    match: Patterns = Field(
        description="Glob pattern, or a list: paths from this file's folder, or names of files; "
        "`*` also crosses folders."
    )
    select: tuple[str, ...] = Field(
        default=(), description="The only rules that count: ids, beginnings of ids, or names."
    )
    ignore: tuple[str, ...] = Field(
        default=(), description="Rules that do not count: ids, beginnings of ids, or names."
    )
    severity: dict[str, Literal["info", "warning", "error"]] = Field(
        default_factory=dict, description="Another severity by rule: `PFX105: warning`."
    )
    variables: dict[str, Scope] = Field(
        default_factory=dict,
        description="How often a variable changes, by its name: `company: deployment`. Goes before "
        "what its name says; a governed prompt declares its own.",
    )
    delimiters: DelimitersConfig | None = Field(
        default=None, description="What marks templates instead of Jinja2's own."
    )


class LintConfig(StrictModel):
    """What lint does by default."""

    exclude: tuple[str, ...] = Field(default=(), description="Glob patterns of paths to skip.")
    fail_on: Literal["info", "warning", "error", "never"] = Field(
        default="error", description="Severity from which lint exits 1."
    )
    block_size: int | None = Field(
        default=None, gt=0, description="Block size for prompts without a target; 16 if omitted."
    )
    baseline: Path | None = Field(
        default=None, description="File with known findings, which do not fail a run."
    )
    paths: tuple[LintPathConfig, ...] = Field(
        default=(), description="What is different for some paths."
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


class NvmeConfig(StrictModel):
    """The tier on a local disk."""

    path: Path = Field(description="Its folder, on a local disk; several servers may share it.")
    gib: float = Field(gt=0, description="Disk space of the whole folder, in GiB.")
    policy: Literal["lru", "lru_freq", "cost_aware"] = Field(
        default="lru_freq", description="Which block goes first when the folder is full."
    )
    ttl_hours: float | None = Field(
        default=168, gt=0, description="How long a block lives that nobody uses; null for ever."
    )
    tenant_shares: bool = Field(
        default=False, description="Share the space out, so that no tenant pushes out another."
    )
    key_file: Path | None = Field(
        default=None,
        description="Keys of tenants and groups; blocks are encrypted if it is given.",
    )
    threads: int = Field(default=4, ge=1, description="Threads that read, and as many that write.")


class TiersConfig(StrictModel):
    """Where cached blocks go that leave the device."""

    host_gib: float = Field(gt=0, description="Host memory for each server, in GiB.")
    policy: Literal["lru", "lru_freq", "cost_aware"] = Field(
        default="lru_freq", description="Which block leaves host memory first."
    )
    tenant_shares: bool = Field(default=False, description="Share host memory out between tenants.")
    nvme: NvmeConfig | None = Field(default=None, description="The tier below host memory.")
    shared: dict[str, FiniteJson] | None = Field(
        default=None,
        description="vLLM's own object store as one more tier: `{type: obj, ...}`, passed on.",
    )


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
        default=None, gt=0, description="KV cache of a CPU host, in GiB."
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


class Config(StrictModel):
    """The whole of prefixctl.yaml."""

    prefix_cache: PrefixCacheConfig = Field(
        default=PrefixCacheConfig(), description="What is governed and how."
    )
    prompts: Path = Field(default=Path("templates"), description="Folder of governed prompts.")
    lock: Path | None = Field(
        default=None, description="The lock file; prefixes.lock.yaml beside the prompts if omitted."
    )
    registry: RegistryConfig = Field(default=RegistryConfig(), description="Published versions.")
    targets: dict[Name, TargetConfig] = Field(default_factory=dict, description="Deployments.")
    tenancy: TenancyConfig = Field(default=TenancyConfig(), description="Namespaces.")
    gateway: GatewayConfig = Field(
        default=GatewayConfig(), description="Who requests are from, and what they may do."
    )
    tiers: TiersConfig | None = Field(
        default=None, description="Host memory and disk behind the device; none if omitted."
    )
    server: ServerConfig = Field(default=ServerConfig(), description="How to start vLLM.")
    lint: LintConfig = Field(default=LintConfig(), description="Lint defaults.")
    metrics: MetricsConfig = Field(default=MetricsConfig(), description="Generated alert rules.")

    @model_validator(mode="after")
    def _sharing_has_a_gateway(self) -> Self:
        if self.tenancy.sharing != "off" and not self.gateway.enabled:
            raise ValueError("tenancy.sharing needs gateway.enabled: it says whose a request is")
        return self

    _root: Path = PrivateAttr(default=Path())
    _file: Path | None = PrivateAttr(default=None)

    def at(self, root: Path, file: Path | None = None) -> Self:
        """The same configuration with its relative paths read from a folder."""
        placed = self.model_copy()
        placed._root, placed._file = root, file  # noqa: SLF001 - its own, on a copy
        return placed

    @property
    def root(self) -> Path:
        """The folder that relative paths are read from."""
        return self._root

    @property
    def path(self) -> str:
        """The file it was read from, for messages."""
        return str(self._file or self._root / CONFIG_NAME)

    @property
    def prompts_dir(self) -> Path:
        """The folder of governed prompts."""
        return self.root / self.prompts

    @property
    def lock_path(self) -> Path:
        """The lock file."""
        return self.root / (self.lock or self.prompts / "prefixes.lock.yaml")

    @property
    def registry_path(self) -> Path:
        """The SQLite file of the registry."""
        return self.root / self.registry.path

    def target(self, name: str) -> TargetConfig:
        """The target of that name.

        Raises:
            ConfigError: If there is none, with the nearest name.
        """
        if name not in self.targets:
            raise ConfigError(
                f"no target '{name}'",
                path=self.path,
                hint=did_you_mean(name, list(self.targets)) or f"add targets.{name}",
            )
        return self.targets[name]

    def served_name(self, target: TargetConfig) -> str:
        """The model name that a target's servers answer to."""
        return self.server.served_model_name or target.model

    def only_target(self, name: str | None = None) -> tuple[str, TargetConfig]:
        """The named target, or the only one that there is, with its name.

        Raises:
            ConfigError: If there is no such target, or none, or several to choose from.
        """
        if name is not None:
            return name, self.target(name)
        if len(self.targets) == 1:
            return next(iter(self.targets.items()))
        if not self.targets:
            raise ConfigError("no target", path=self.path, hint="add one under `targets:`")
        raise ConfigError(
            "several targets",
            path=self.path,
            hint=f"choose with --target: {', '.join(self.targets)}",
        )


def load_config(path: Path | None = None, *, start: Path | None = None) -> Config:
    """Load a given file, or the nearest prefixctl.yaml in ``start`` and the folders above it.

    Without any file the defaults hold, with ``start`` as the root.

    Raises:
        ConfigError: If a given file is missing, or the file does not fit the models.
    """
    start = start or Path()
    found = path or _find(start)
    if found is None:
        return Config().at(start)
    data = read_bytes(found, ConfigError, hint="give --config FILE, or run where it lies")
    config, _ = load_model(Config, data, str(found), ConfigError)
    return config.at(found.parent, found)


def _find(start: Path) -> Path | None:
    folder = start.absolute()
    for candidate in (folder, *folder.parents):
        if is_there(candidate / CONFIG_NAME):
            path = candidate / CONFIG_NAME
            return Path(CONFIG_NAME) if candidate == Path.cwd() else path
    return None
