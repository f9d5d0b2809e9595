"""Real vLLM servers on the CPU, started once and side by side for all engine tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from gated import Gated, gated_server

from prefixctl.api.serve import build_serve_command
from prefixctl.api.versions import bump_prompts, publish_prompts
from prefixctl.config import Config, load_config
from prefixctl.demo.run import example_templates, training_texts
from prefixctl.demo.tokenizer import make_tokenizer
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.engine.http import HttpEngine
from prefixctl.engine.launch import Server, free_port

PROJECT = """\
prompts: templates
targets:
  cbor: &cbor
    model: model
    dtype: float32
    block_size: 32
    hash_algorithm: sha256_cbor
    parameters: {{index_name: bulletins-north}}
    servers: ["{cbor}"]
  ranks: {{<<: *cbor, hash_algorithm: sha256, servers: ["{ranks}"]}}
tenancy: {{secret_file: secret}}
"""
SERVER = """\
server:
  max_model_len: 8192
  kv_cache_gib: 1
  extra_args: ["--enforce-eager"]
"""
TWO_OF_EACH = {"data_parallel_size": 2, "api_server_count": 2}
SMALL_POOL = {
    "max_model_len": 1024,
    "extra_args": ("--enforce-eager", "--num-gpu-blocks-override", "121"),
    "environment": {"VLLM_SERVER_DEV_MODE": "1"},
}
TOKEN = "a-token-for-tests-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Addresses of the servers, and of the event streams of the first two."""

    cbor: str
    ranks: str
    uncached: str
    small: str
    cbor_events: str
    ranks_events: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProject:
    """A project with the example prompts published, and servers for its targets."""

    config: Config
    servers: Servers


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with templates, a tokenizer and a 5 M float32 model."""
    folder = tmp_path_factory.mktemp("engine")
    with example_templates() as source:
        shutil.copytree(
            source, folder / "templates", ignore=shutil.ignore_patterns("*.lock.yaml", "bad")
        )
    make_tokenizer(folder / "model", training_texts(folder / "templates"))
    make = [sys.executable, "-m", "prefixctl.vllm_plugin.tiny_model", str(folder / "model")]
    subprocess.run([*make, "--size", "5m", "--dtype", "float32"], check=True, capture_output=True)
    (folder / "secret").write_text("a-secret-for-tests-only")
    return folder


@pytest.fixture(scope="session")
def engine_project(model_folder: Path) -> Iterator[EngineProject]:
    """Four servers.

    sha256_cbor with events; two ranks and two API processes, sha256, events; no prefix cache; a
    small pool.
    """
    ports = [free_port() for _ in range(4)]
    events = [free_port() for _ in range(2)]
    urls = [f"http://127.0.0.1:{p}" for p in ports]
    path = model_folder / "prefixctl.yaml"
    path.write_text(PROJECT.format(cbor=urls[0], ranks=urls[1]) + SERVER)
    config = load_config(path)
    settings = [
        ("cbor", {"kv_events_endpoint": f"tcp://*:{events[0]}"}, True),
        ("ranks", {"kv_events_endpoint": f"tcp://*:{events[1]}", **TWO_OF_EACH}, True),
        ("cbor", {}, False),
        ("cbor", SMALL_POOL, True),
    ]
    with ExitStack() as stack:
        servers = []
        for (target, change, caches), port in zip(settings, ports, strict=True):
            changed = config.model_copy(
                update={
                    "server": config.server.model_copy(update=change),
                    "prefix_cache": config.prefix_cache.model_copy(update={"enabled": caches}),
                }
            )
            command = build_serve_command(changed, None, target=target, port=port)
            log = model_folder / f"server-{port}.log"
            environment = {**os.environ, ADMIN_TOKEN: TOKEN}
            server = Server(command, log=log, environment=environment)
            stack.callback(server.stop)
            server.start()
            servers.append(server)
        for server in servers:
            server.wait_ready()
        bump_prompts(config, reason="first", author="test")
        publish_prompts(config, by="test")
        yield EngineProject(
            config=config,
            servers=Servers(
                cbor=urls[0],
                ranks=urls[1],
                uncached=urls[2],
                small=urls[3],
                cbor_events=f"tcp://127.0.0.1:{events[0]}",
                ranks_events=f"tcp://127.0.0.1:{events[1]}",
            ),
        )


@pytest.fixture
def engine(engine_project: EngineProject) -> Iterator[HttpEngine]:
    """The server with one rank and a prefix cache."""
    with HttpEngine(engine_project.servers.cbor) as made:
        yield made


@pytest.fixture(scope="session")
def gated(model_folder: Path) -> Iterator[Gated]:
    """A server with sharing on, two API processes and a gateway in each."""
    with gated_server(model_folder) as server:
        yield server
