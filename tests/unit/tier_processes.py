"""Processes that work on one tier folder, killed at random times or left to the end.

``bench/damage.py`` runs the long version of what the tests run shortly.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from tiering import OURS, disk_bytes, file_of, key_of, load, open_store, put

from prefixctl.tiers.store import BlockStore

BLOCKS = 24
BLOCK_BYTES = 150_000
CHAINS = 30
LENGTH = 4
REFRESHES = 0.02
KILL_AT_LOOK = 10
FAILED = 3
NOBODY = 65534


def work(path: Path, seed: int, seconds: float) -> None:
    """Store and load at random; every load is compared with what must be there."""
    choose = random.Random(seed)
    store = open_shared(path)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if choose.random() < REFRESHES:
            store.refresh()
        number, chain = choose.randrange(LENGTH), choose.randrange(CHAINS)
        if load(store, number, chain) != "hit":
            put(store, number, chain)
    causes = store.snapshot()["misses"]
    if any(causes[cause] for cause in ("checksum", "foreign", "unreadable")):
        raise AssertionError(causes)
    store.close()


def open_shared(path: Path) -> BlockStore:
    return open_store(path, blocks=BLOCKS, block_bytes=BLOCK_BYTES)


def start(path: Path, seed: int, seconds: float) -> int:
    """A forked child that works; its process id."""
    child = os.fork()
    if child:
        return child
    code = FAILED
    try:
        work(path, seed, seconds)
        code = 0
    finally:
        os._exit(code)


def kill_rounds(path: Path, rounds: int, seed: int = 0) -> dict[str, int]:
    """Kill a working child again and again; after each time the folder must be whole.

    Returns:
        How many blocks were found and compared, and how many half-written files were removed.

    Raises:
        AssertionError: If anything is wrong.
    """
    choose = random.Random(seed)
    compared = leftovers = 0
    for number in range(rounds):
        child = start(path, seed + number, 60.0)
        let_work(child, choose.uniform(0.002, 0.05))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"round {number}: the child ended by itself, {status}"
        leftovers += count_temporaries(path)
        compared += check_whole(path, number)
    return {"rounds": rounds, "blocks_compared": compared, "half_written_removed": leftovers}


def let_work(process: int, seconds: float) -> None:
    """Wait until a process has had so much of a processor: on a busy machine that takes longer."""
    path, deadline = Path(f"/proc/{process}/schedstat"), time.monotonic() + 60
    while int(path.read_text().split()[0]) < seconds * 1e9:
        assert time.monotonic() < deadline, "the process does not get on"
        time.sleep(0.001)


def count_temporaries(path: Path) -> int:
    folder = path / "temporary"
    return len(list(folder.iterdir())) if folder.exists() else 0


def check_whole(path: Path, number: int) -> int:
    """Open the folder as the next server does, and load every block that is there."""
    store = open_shared(path)
    there = disk_bytes(path)
    assert count_temporaries(path) == 0, f"round {number}: half-written files are left"
    assert store.directory.total_bytes == there, f"round {number}: the total is wrong"
    assert there <= store.max_bytes, f"round {number}: {there:,} bytes are too many"
    found = 0
    for chain in range(CHAINS):
        for depth in range(LENGTH):
            outcome = load(store, depth, chain)
            assert outcome in {"hit", "absent"}, f"round {number}: {outcome}"
            found += outcome == "hit"
    files = len(list((path / OURS.folder).rglob("*.kv")))
    assert found == files, f"round {number}: {found} blocks of {files} files"
    store.close()
    return found


def share(path: Path, processes: int, seconds: float) -> dict[str, int]:
    """Several processes at once, one of which is killed; the bound is looked at all the time.

    Raises:
        AssertionError: If the bound does not hold, if the total is less than what is there, or if
            a process found a wrong block.
    """
    watching = open_shared(path)
    limit = watching.max_bytes
    children = [start(path, seed, seconds) for seed in range(processes)]
    victim = start(path, processes, 60.0)
    looks, most = 0, 0
    waiting = set(children)
    try:
        while waiting:
            with (
                watching.directory.locked()
            ):  # while nobody moves a file, so that none counts twice
                there, looks = disk_bytes(path), looks + 1
                most = max(most, there)
                assert watching.directory.total_bytes >= there, "the total is too small"
            time.sleep(0.002)
            if looks == KILL_AT_LOOK:
                os.kill(victim, signal.SIGKILL)
            for child in list(waiting):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    waiting.discard(child)
                    assert status == 0, f"a process failed with {status}"
    finally:
        for child in (victim, *waiting):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    watching.refresh()
    assert watching.directory.total_bytes == disk_bytes(path), "the total is wrong"
    watching.close()
    assert most <= limit, f"{most:,} bytes at one time, {limit:,} allowed"
    return {"looks": looks, "most_bytes": most, "max_bytes": limit}


def kill_at(path: Path, step: str) -> None:
    """A child is killed right after a step of a store; the others' bound must hold then.

    Args:
        path: The folder.
        step: ``total`` when the space is reserved, ``file`` when there is a file for it, ``space``
            when that has its space on the disk, ``place`` when it is in its place.

    Raises:
        AssertionError: If more is on the disk than the total says or the bound allows, or if the
            space is lost for good.
    """
    survivor = open_store(path, blocks=4)
    child = os.fork()
    if not child:
        try:
            dying = open_store(path, blocks=4)
            directory = dying.directory
            if step == "total":
                die_after(directory, "add")
            elif step == "file":
                die_after(directory, "reserve")
            elif step == "space":
                die_after(os, "posix_fallocate")
            else:
                die_after(directory, "commit")
            put(dying, 0, 77)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child was not killed"
    assert survivor.directory.total_bytes == survivor.max_bytes // 4, "no space was reserved"
    for chain in range(12):
        assert put(survivor, 0, chain), "the space of the dead one is lost"
        assert disk_bytes(path) <= survivor.max_bytes, "the bound does not hold"
    assert survivor.directory.total_bytes == disk_bytes(path), "it does not notice by itself"
    assert count_temporaries(path) == 0
    survivor.close()


def die_after(owner: Any, name: str) -> None:
    """Kill this process when a call of it is over."""
    real = getattr(owner, name)

    def die(*given: Any, **more: Any) -> None:
        real(*given, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)


def check_denied(path: Path, blocks: int = 20) -> dict[str, int]:
    """Blocks without read permission, loaded by an unprivileged child: root may read anything.

    Raises:
        AssertionError: If one was served, or could not be stored again.
    """
    path.mkdir(mode=0o777, exist_ok=True)
    path.chmod(0o777)
    child = os.fork()
    if not child:
        code = FAILED
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            deny(path / "tier", blocks)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the unprivileged child failed with {status}"
    return {"blocks": blocks}


def deny(path: Path, blocks: int) -> None:
    """Take the permissions away, load, and store again."""
    store = open_store(path, blocks=blocks)
    for number in range(blocks):
        put(store, number)
        file_of(store, number).chmod(0)
    assert [load(store, number) for number in range(blocks)] == ["unreadable"] * blocks
    assert store.snapshot()["misses"]["unreadable"] == blocks
    assert not any(store.contains(key_of(number)) for number in range(blocks))
    assert all(put(store, number) for number in range(blocks))
    assert [load(store, number) for number in range(blocks)] == ["hit"] * blocks
