"""Plugins fail closed: each seam is broken in turn, and nothing is served ungoverned."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest

from prefixctl.config import Config
from prefixctl.engine.launch import free_port, serve_command
from prefixctl.vllm_plugin import guard

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def owner_of(seam):
    found = importlib.import_module(seam.module)
    *path, last = seam.name.split(".")
    for part in path:
        found = getattr(found, part)
    return found, last


def test_the_installed_vllm_is_whole():
    guard.check()


@pytest.mark.parametrize("seam", guard.SEAMS, ids=lambda seam: seam.name)
def test_a_seam_that_is_gone_stops_the_server(seam, monkeypatch):
    owner, name = owner_of(seam)
    monkeypatch.delattr(owner, name)
    for base in getattr(owner, "__mro__", (owner,))[1:-1]:
        monkeypatch.delattr(base, name, raising=False)
    with pytest.raises(guard.UngovernableError) as error:
        guard.check()
    assert f"{seam.module}.{seam.name} is gone ({seam.why})" in str(error.value)
    assert "governed: false" in str(error.value)


@pytest.mark.parametrize(
    "seam", [s for s in guard.SEAMS if s.parameters is not None], ids=lambda seam: seam.name
)
def test_a_seam_with_other_parameters_stops_the_server(seam, monkeypatch):
    owner, name = owner_of(seam)
    monkeypatch.setattr(owner, name, lambda renamed: None)
    with pytest.raises(guard.UngovernableError, match="takes renamed"):
        guard.check()
    monkeypatch.setattr(owner, name, 7)
    with pytest.raises(guard.UngovernableError, match="is no function any more"):
        guard.check()


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0.0+cu129"])
def test_an_untested_release_stops_the_server(version, monkeypatch):
    monkeypatch.setattr(guard, "installed_version", lambda: version)
    with pytest.raises(guard.UngovernableError, match=r"governs vLLM 0\.32\.\*; this is"):
        guard.check()


def test_a_host_without_vllm_is_told_so(monkeypatch):
    monkeypatch.setattr(guard, "installed_version", lambda: None)
    with pytest.raises(guard.UngovernableError, match="not installed"):
        guard.check()


def end_group(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def failed_starts(model_folder, tmp_path_factory):
    """What servers said that should not come up; all are started side by side."""
    config = Config.model_validate({"server": {"extra_args": ["--enforce-eager"]}}).at(model_folder)
    command = serve_command(config, "model", port=free_port())
    whole, plugins = list(command.arguments), {"VLLM_PLUGINS": "something-else"}
    place = whole.index("--additional-config")
    broken = tmp_path_factory.mktemp("broken")
    (broken / "sitecustomize.py").write_text(
        "import vllm.v1.core.block_pool as pool\ndel pool.BlockPool.touch\n"
    )
    starts = {
        "without the admin routes": (whole, plugins),
        "without prefix caching": ([*whole, "--no-enable-prefix-caching"], {}),
        "without settings": (whole[:place] + whole[place + 2 :], {}),
        "with a changed vLLM": (whole, {"PYTHONPATH": str(broken)}),
    }
    base = {**os.environ, **command.environment, "VLLM_CPU_KVCACHE_SPACE": "1"}
    said = {}
    with ExitStack() as stack:
        running = {}
        for name, (arguments, environment) in starts.items():
            log = stack.enter_context((broken / name).open("w+"))
            process = subprocess.Popen(
                arguments,
                env={**base, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(end_group, process)
            running[name] = process, log
        for name, (process, log) in running.items():
            assert process.wait(timeout=400) != 0, name
            log.seek(0)
            said[name] = log.read()
    return said


def test_a_server_without_the_admin_routes_does_not_start(failed_starts):
    said = failed_starts["without the admin routes"]
    assert "admin routes were not loaded" in said and "VLLM_PLUGINS must name prefixctl" in said


def test_a_server_without_prefix_caching_does_not_start_governed(failed_starts):
    said = failed_starts["without prefix caching"]
    assert "prefix caching is off, so there is nothing to govern" in said


def test_a_scheduler_without_its_settings_does_not_start(failed_starts):
    assert "started without its settings" in failed_starts["without settings"]


def test_a_changed_vllm_does_not_start(failed_starts):
    """In every process: the engine's own is where the change is seen."""
    said = failed_starts["with a changed vLLM"]
    assert "vllm.v1.core.block_pool.BlockPool.touch is gone (hits)" in said


def test_the_launcher_shows_the_version_of_the_build():
    done = subprocess.run(
        [sys.executable, "-m", "prefixctl.vllm_plugin.launch", "--version"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert guard.installed_version() in done.stdout
