"""A disk that is really full: a small tmpfs, where this user may mount one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiering import ROOM, load, open_store, put

SIZE_BYTES = 256 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("no mount here")
    command = [mount, "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this user may not mount a tmpfs: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([unmount, str(folder)], check=True)


def test_a_full_disk_degrades_and_recovers(small_disk, monkeypatch):
    monkeypatch.setattr("prefixctl.tiers.store.FULL_PAUSE_SECONDS", 0.0)
    store = open_store(small_disk / "tier", blocks=100)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(SIZE_BYTES // 2))
    stored = [number for number in range(40) if put(store, number)]
    snapshot = store.snapshot()
    assert 0 < len(stored) < 40
    assert snapshot["refused"]["disk_full"] == 40 - len(stored)
    assert snapshot["bytes"] == len(stored) * ROOM
    assert all(load(store, number) == "hit" for number in stored)
    ballast.unlink()
    assert put(store, 50)
    assert load(store, 50) == "hit"
    store.close()
