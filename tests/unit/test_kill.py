"""kill -9 at every step of every writer: what is left is the old state or the new one."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import killing
import pytest

from prefixctl.config import Config, load_config
from prefixctl.core.versions import PrefixVersion
from prefixctl.errors import RegistryError
from prefixctl.ids import PromptName
from prefixctl.registry.publish import load_published
from prefixctl.registry.store import open_store
from prefixctl.registry.store.base import Alias, PromptState
from prefixctl.sources.lockfile import load_lock

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("killing.py")
NAME = PromptName("support")


@dataclass(frozen=True)
class Snapshot:
    """Everything that an operation may change."""

    lock: tuple[PrefixVersion, ...]
    lock_bytes: bytes | None
    registry: PromptState | None
    live: dict[str, bytes] | None


def config_of(project: Path) -> Config:
    return load_config(project / "prefixctl.yaml")


def snapshot(project: Path) -> Snapshot:
    config = config_of(project)
    path = config.lock_path
    registry, live = None, None
    try:
        with closing(open_store(config)) as store:
            registry = store.state(NAME)
        published = load_published(config, "support", Alias.LIVE)
        assert published.entry.content.digest == published.prompt.content_digest()
        live = dict(published.prompt.files)
    except RegistryError as exc:
        assert "no registry here yet" in str(exc) or "is in the registry" in str(exc)
    return Snapshot(
        lock=load_lock(path).prompts.get(NAME, ()),
        lock_bytes=path.read_bytes() if path.exists() else None,
        registry=registry if registry and registry.versions else None,
        live=live,
    )


def run(operation: str, project: Path) -> None:
    killing.OPERATIONS[operation](project)


def change(project: Path) -> None:
    (project / "templates" / "support" / "system.md").write_bytes(b"Other words.\r\n" * 20)


def before_first_bump(project: Path) -> None:
    pass


def before_bump(project: Path) -> None:
    run("bump", project)
    change(project)


def before_first_publish(project: Path) -> None:
    run("bump", project)


def before_publish(project: Path) -> None:
    run("bump", project)
    run("publish", project)
    change(project)
    run("bump", project)


def before_rollback(project: Path) -> None:
    before_publish(project)
    run("publish", project)


def before_gc(project: Path) -> None:
    before_rollback(project)
    change(project)
    (project / "templates" / "support" / "user.md.j2").write_text("Asked: {{ question }}")
    run("bump", project)
    run("publish", project)


CASES: dict[str, tuple[str, Callable[[Path], None], int]] = {
    "first bump": ("bump", before_first_bump, 8),
    "bump": ("bump", before_bump, 8),
    "first publish": ("publish", before_first_publish, 25),
    "publish": ("publish", before_publish, 25),
    "rollback": ("rollback", before_rollback, 12),
    "gc": ("gc", before_gc, 12),
}


def sweep(operation: str, project: Path, out: Path) -> list[dict[str, int]]:
    done = subprocess.run(
        [sys.executable, SCRIPT, "sweep", operation, project, out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_step(
    project: Path, tmp_path_factory: pytest.TempPathFactory, case: str
) -> None:
    operation, prepare, fewest_steps = CASES[case]
    prepare(project)
    old = snapshot(project)
    out = tmp_path_factory.mktemp("killed")
    runs = sweep(operation, project, out)
    new = snapshot(out / str(runs[-1]["step"]))
    assert new != old
    assert sum(r["killed"] for r in runs) >= fewest_steps
    seen = [snapshot(out / str(r["step"])) for r in runs]
    assert all(s in (old, new) for s in seen)
    assert seen == sorted(seen, key=lambda s: s == new), "once new, a later kill leaves it new"
    assert old in seen
    for r in runs:
        check_file(config_of(out / str(r["step"])).registry_path)
    if operation in {"bump", "publish"}:
        for r in runs[::6]:
            run(operation, out / str(r["step"]))
            assert snapshot(out / str(r["step"])) == new
            assert not list((out / str(r["step"])).glob("templates/.*"))


def test_killed_at_any_moment_inside_a_commit(project: Path) -> None:
    """The steps of SQLite's own commit cannot be counted from here, so kill at random."""
    before_publish(project)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import killing; from pathlib import Path\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    killing.publish(Path(sys.argv[2])); killing.publish_first(Path(sys.argv[2]))\n"
    )
    delays = random.Random(7)  # the same moments in every run
    config = config_of(project)
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", script, SCRIPT.parent, project], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delays.uniform(0.02, 0.25))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        published = load_published(config, "support", Alias.LIVE)
        assert published.entry.content.digest == published.prompt.content_digest()
        with closing(open_store(config)) as store:
            moves = store.state(NAME).moves
        assert all(a.after == b.before for a, b in pairwise(moves))
        check_file(config.registry_path)


def together(operations: list[str], project: Path) -> None:
    children = [
        subprocess.Popen([sys.executable, SCRIPT, "run", operation, project])
        for operation in operations
    ]
    assert [child.wait() for child in children] == [0] * len(children)


def test_two_bumps_at_once_make_one_version(project: Path) -> None:
    before_bump(project)
    together(["bump"] * 3, project)
    lock = load_lock(config_of(project).lock_path)
    assert [e.version for e in lock.prompts[NAME]] == [1, 2]


def test_two_publishes_at_once_are_serialised(project: Path) -> None:
    before_publish(project)
    together(["publish", "publish_first", "publish", "publish_first"], project)
    with closing(open_store(config_of(project))) as store:
        state = store.state(NAME)
    assert [v.version for v in state.versions] == [1, 2]
    assert all(a.after == b.before for a, b in pairwise(state.moves))
    assert state.moves[-1].after == state.serving.live


def test_first_publishes_at_once_make_one_registry(project: Path) -> None:
    before_first_publish(project)
    together(["publish"] * 3, project)
    with closing(open_store(config_of(project))) as store:
        assert [(m.before, m.after) for m in store.state(NAME).moves] == [(None, 1)]


def test_writers_of_other_prompts_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from test_lockfile import FILE, bumped, update_lock\n"
        "for i in range(8):\n"
        "    change = lambda lock: bumped(lock, sys.argv[3], str(i))\n"
        "    update_lock(Path(sys.argv[2]) / FILE, change)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", script, SCRIPT.parent, tmp_path, name])
        for name in ("a", "b")
    ]
    assert [child.wait() for child in children] == [0, 0]
    lock = load_lock(tmp_path / "prefixes.lock.yaml")
    assert {name: len(entries) for name, entries in lock.prompts.items()} == {"a": 8, "b": 8}
    assert [p.name for p in tmp_path.iterdir()] == ["prefixes.lock.yaml"]


def check_file(path: Path) -> None:
    if path.exists():
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
