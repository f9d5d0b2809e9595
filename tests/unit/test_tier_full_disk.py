"""A disk that is really full: a small tmpfs, where this user may mount one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiering import ROOM, load, open_store, put
from tmpfs import small_disk

SIZE_BYTES = 256 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", SIZE_BYTES) as folder:
        yield folder


def test_a_full_disk_degrades_and_recovers(disk, monkeypatch):
    monkeypatch.setattr("prefixctl.tiers.deposit.FULL_PAUSE_SECONDS", 0.0)
    store = open_store(disk / "tier", blocks=100)
    ballast = disk / "ballast"
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
