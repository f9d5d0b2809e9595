"""What every kind of lease must do; Redis joins `leases` when it comes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from prefixctl.errors import UnreachableError
from prefixctl.registry.lease import SqliteLeases


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry" / "registry.leases"


def test_one_holder_at_a_time(path: Path) -> None:
    inside, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with SqliteLeases(path).hold("prefix"):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside) == (1, 0)


def test_other_keys_are_free(path: Path) -> None:
    leases = SqliteLeases(path)
    with leases.hold("a"), leases.hold("b"):
        pass
    with leases.hold("a"):
        pass


def test_a_lease_is_let_go_of_after_an_error(path: Path) -> None:
    leases = SqliteLeases(path)
    with pytest.raises(ZeroDivisionError), leases.hold("a"):
        raise ZeroDivisionError
    with leases.hold("a"):
        pass


def test_a_killed_holder_holds_up_nobody_for_longer_than_its_time(path: Path) -> None:
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from prefixctl.registry.lease import SqliteLeases\n"
        "with SqliteLeases(Path(sys.argv[1]), seconds=1.5).hold('a'):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    started = time.monotonic()
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -9
    with SqliteLeases(path).hold("a"):
        assert time.monotonic() - started >= 1.5


def test_an_expired_holder_does_not_end_the_next_ones_lease(path: Path) -> None:
    now = 0.0
    leases = SqliteLeases(path, seconds=10, clock=lambda: now)
    first, second = leases.hold("a"), leases.hold("a")
    first.__enter__()
    now = 11.0
    second.__enter__()
    first.__exit__(None, None, None)
    assert not leases._take("a", "third")
    second.__exit__(None, None, None)
    assert leases._take("a", "third")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no lease"), SqliteLeases(tmp_path).hold("a"):
        pass
