"""Killed writers and several processes: nothing half written is read, the bound holds."""

from __future__ import annotations

import os

import pytest
from tier_processes import check_denied, kill_at, kill_rounds, share


def test_killed_writers_leave_a_whole_folder(tmp_path):
    report = kill_rounds(tmp_path / "tier", 15)
    assert report["blocks_compared"] > 100


@pytest.mark.parametrize("step", ["total", "file", "space", "place"])
def test_the_bound_holds_after_a_kill_at_any_step_of_a_store(tmp_path, step):
    kill_at(tmp_path / "tier", step)


def test_several_processes_share_a_folder(tmp_path):
    report = share(tmp_path / "tier", 3, 0.6)
    assert report["looks"] > 10
    assert report["most_bytes"] > 0.8 * report["max_bytes"]


def test_permission_denied_is_a_miss_and_the_block_is_stored_again(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o011)
    assert check_denied(tmp_path / "denied") == {"blocks": 20}
