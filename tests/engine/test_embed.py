"""`CacheEngine` on a server and in the same process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gated import TARGET

from prefixctl.core.usage import CacheState
from prefixctl.embed import CacheEngine
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.errors import ConfigError, UsageError
from tests.engine.conftest import TOKEN

pytestmark = pytest.mark.vllm
VALUES = {"question": "Where is it?", "customer": "member 1", "local_time": "09:14"}
PAGE = Path(__file__).parents[2] / "docs" / "embed.md"
PROJECT = """\
prompts: {root}/templates
lock: {root}/templates/prefixes.lock.yaml
registry: {{path: {root}/.prefixctl/registry.db}}
targets:
  cbor:
    {{model: model, dtype: float32, block_size: 32, parameters: {{index_name: bulletins-north}}}}
"""
LOCAL = """
import json, sys
from pathlib import Path
from vllm import LLM
from prefixctl.config import load_config
from prefixctl.embed import CacheEngine, local_arguments

config = load_config(Path(sys.argv[1]))
llm = LLM(str(config.root / "model"), max_model_len=8192, enforce_eager=True,
          **local_arguments(config, target="cbor"))
values = json.loads(sys.argv[2])
with CacheEngine.local(llm, config, target="cbor") as engine:
    put = engine.put("support-agent")[0]
    first = engine.generate("support-agent", values, max_tokens=3)
    pinned = engine.pin("support-agent@1")[0]
    blocks = engine.stats()[0].blocks
    given = engine.unpin("support-agent")
print("RESULT", json.dumps([put.resident, put.blocks, first.state, first.use.cached_tokens,
                            pinned.pinned, blocks["pinned"], given]))
"""


def test_a_server_puts_pins_and_generates(engine_project):
    url = engine_project.servers.cbor
    environment = {ADMIN_TOKEN: TOKEN}
    with CacheEngine.connect(
        url, engine_project.config, target="cbor", environment=environment
    ) as engine:
        (put,) = engine.put("support-agent")
        assert put.resident == put.blocks > 100
        answer = engine.generate("support-agent", VALUES, max_tokens=3)
        assert answer.state is CacheState.FULL and answer.prefix == "support-agent@1"
        assert answer.text
        (pinned,) = engine.pin("support-agent@1")
        assert pinned.pinned == pinned.blocks
        assert engine.stats()[0].blocks["pinned"] == pinned.blocks
        assert engine.unpin("support-agent") == [pinned.blocks]
        assert engine.unpin("support-agent") == [None]


def test_a_server_behind_its_gateway_does_it_for_a_group(gated):
    secret = {gated.config.tenancy.secret_env: (gated.config.root / "secret").read_text()}
    environment = {ADMIN_TOKEN: TOKEN, **secret}
    where = {"target": TARGET, "environment": environment}
    with CacheEngine.connect(gated.url, gated.config, group="shop", **where) as engine:
        (put,) = engine.put("handbook-rag")
        assert put.resident == put.blocks > 100
        (pinned,) = engine.pin("handbook-rag")
        assert pinned.pinned == pinned.blocks
        words = [{"role": "user", "content": "a question that nobody has asked before"}]
        cached = gated.cached("bolt", prefix_key="handbook-rag", messages=words)
        assert cached == put.blocks * 32
        assert engine.unpin("handbook-rag") == [put.blocks]
        answer = engine.generate("support-agent", VALUES, max_tokens=2)
        assert answer.prefix == "support-agent@1" and answer.text
        answer = engine.generate("support-agent", VALUES | {"question": "And now?"}, max_tokens=2)
        assert answer.state is CacheState.FULL
    with pytest.raises(ConfigError, match="behind its gateway"):
        CacheEngine.connect(gated.url, gated.config, **where)
    with pytest.raises(UsageError, match="a group and a tenant"):
        CacheEngine.connect(gated.url, gated.config, group="shop", tenant="acme", **where)


def test_without_an_admin_token_it_says_what_to_set(engine_project):
    with pytest.raises(ConfigError, match="no admin token"):
        CacheEngine.connect("http://127.0.0.1:1", engine_project.config, environment={})


def test_an_engine_in_the_same_process_does_the_same(engine_project):
    config = engine_project.config
    done = subprocess.run(
        [sys.executable, "-c", LOCAL, config.path, json.dumps(VALUES)],
        check=False,
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    resident, blocks, state, cached, pinned, in_pool, given = json.loads(lines[0][7:])
    assert resident == blocks == pinned == in_pool == given[0] > 100
    assert state == CacheState.FULL
    assert cached >= (blocks - 1) * 32


@pytest.mark.parametrize(
    ("number", "said"), [(0, r"full 3968\n\{.*'pinned': 124"), (1, r"pinned=124, active=True")]
)
def test_the_programs_of_the_page_run_as_printed(engine_project, tmp_path, number, said):
    root = engine_project.config.root
    (tmp_path / "prefixctl.yaml").write_text(PROJECT.format(root=root))
    for name in ("model", "model-files"):
        (tmp_path / name).symlink_to(root / "model")
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[number]
    program = program.replace("http://127.0.0.1:8000", engine_project.servers.cbor)
    # Nothing is compiled, which would take minutes.
    program = program.replace("**local_arguments", "enforce_eager=True, **local_arguments")
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        check=False,
        cwd=tmp_path,
        env={**os.environ, ADMIN_TOKEN: TOKEN, "VLLM_CPU_KVCACHE_SPACE": "4"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(said, done.stdout), done.stdout
