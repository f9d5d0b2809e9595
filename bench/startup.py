"""Q1: `prefixctl --version` against an empty Typer program, in interleaved pairs.

Usage: python bench/startup.py [PAIRS]. Prints its figures last; exits 1 above the bar.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 1.5
EMPTY = """\
import typer

app = typer.Typer()


@app.command()
def main() -> None:
    pass


app()
"""


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.py"
        empty.write_text(EMPTY)
        ours = [sys.executable, "-m", "prefixctl", "--version"]
        theirs = [sys.executable, str(empty)]
        seconds(ours), seconds(theirs)
        measured = [(seconds(ours), seconds(theirs)) for _ in range(pairs)]
    ratio = statistics.median(a / b for a, b in measured)
    figures = {
        "pairs": pairs,
        "prefixctl_ms": round(statistics.median(a for a, _ in measured) * 1000, 1),
        "empty_typer_ms": round(statistics.median(b for _, b in measured) * 1000, 1),
        "ratio": round(ratio, 2),
        "bar": BAR,
    }
    print(json.dumps(figures))
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
