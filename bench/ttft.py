"""Cold against hit: the demo's ratio of times to first token, on a real vLLM on this machine.

Usage: python bench/ttft.py. Runs the demo (3 to 6 minutes) and prints its figures last; exits 1 if
a prompt of 1,200 tokens or more stays below 8.
"""

from __future__ import annotations

import json
import subprocess
import sys

BAR = 8.0
MIN_TOKENS = 1200


def main() -> int:
    done = subprocess.run(
        [sys.executable, "-m", "prefixctl", "demo", "--format", "json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return done.returncode
    ratios = {
        p["prompt"]: round(p["ratio"], 1)
        for p in json.loads(done.stdout)["prompts"]
        if p["request_tokens"] >= MIN_TOKENS
    }
    print(json.dumps({"ratios": ratios, "bar": BAR}))
    return 0 if min(ratios.values()) >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
