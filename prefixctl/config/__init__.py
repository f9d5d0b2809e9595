"""prefixctl.yaml as strict, immutable models.

Relative paths are read from the folder that holds the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, PrivateAttr, model_validator

from prefixctl.config.cache import NvmeConfig, PrefixCacheConfig, TiersConfig
from prefixctl.config.deployment import (
    MetricsConfig,
    RegistryConfig,
    ServerConfig,
    TargetConfig,
)
from prefixctl.config.fields import Name, Scope, is_name, valid_name
from prefixctl.config.lint import JINJA_MARKS, DelimitersConfig, LintConfig, LintPathConfig
from prefixctl.config.tenancy import (
    ALL_TENANTS,
    ANONYMOUS,
    GatewayConfig,
    GroupConfig,
    RateConfig,
    TenancyConfig,
)
from prefixctl.errors import ConfigError
from prefixctl.yamlfile import StrictModel, did_you_mean, is_there, load_model, read_bytes

__all__ = [
    "ALL_TENANTS", "ANONYMOUS", "CONFIG_NAME", "JINJA_MARKS", "Config", "DelimitersConfig",
    "GatewayConfig", "GroupConfig", "LintPathConfig", "Name", "NvmeConfig", "PrefixCacheConfig",
    "RateConfig", "Scope", "ServerConfig", "TargetConfig", "TiersConfig", "is_name",
    "load_config", "valid_name",
]  # fmt: skip

CONFIG_NAME = "prefixctl.yaml"


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
