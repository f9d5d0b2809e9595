"""The one walk over folders, and the one way to replace a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prefixctl.errors import InputError, PromptError
from prefixctl.sources.files import real_path, replace_file, walk
from prefixctl.yamlfile import read_bytes


def test_a_walk_sees_each_folder_once_and_passes_over_what_tools_make(tmp_path: Path) -> None:
    for name in ("b/c", "a", ".git/x", "node_modules/y", "b/build"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "z.md").write_text("")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "nowhere").symlink_to(tmp_path / "gone")
    found = list(walk(tmp_path))
    assert [f.path.relative_to(tmp_path).as_posix() for f in found] == [".", "a", "b", "b/c"]
    assert found[1].files == ("nowhere", "z.md")
    assert found[1].has("nowhere")
    stopped = list(walk(tmp_path, whole=lambda folder: folder.path.name == "b"))
    assert [f.path.name for f in stopped] == [tmp_path.name, "a", "b"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    with pytest.raises(PromptError, match="cannot be read"):
        list(walk(tmp_path, error=PromptError))


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(walk(tmp_path / "none"))


def test_replacing_keeps_links_and_permissions(tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_text("old")
    real.chmod(0o640)
    link = tmp_path / "link.txt"
    link.symlink_to(real)
    replace_file(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.txt", "real.txt"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert path.read_bytes() == b"old"


def test_links_in_a_circle_lead_to_themselves(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert real_path(loop) == loop
    assert real_path(tmp_path) == tmp_path.resolve()
    with pytest.raises(OSError, match="not a regular file"):
        replace_file(loop, b"new")
    assert loop.is_symlink()


def test_a_pipe_and_a_device_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null"), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            replace_file(path, b"new")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_file_that_is_larger_than_it_says(tmp_path: Path) -> None:
    assert read_bytes(Path("/proc/self/stat"))
    with pytest.raises(InputError, match="larger than 3 bytes"):
        read_bytes(Path("/proc/self/stat"), limit=3)
    whole = tmp_path / "a"
    whole.write_bytes(b"abc")
    assert read_bytes(whole, limit=3) == b"abc"
    with pytest.raises(InputError, match="larger than 2 bytes"):
        read_bytes(whole, limit=2)
