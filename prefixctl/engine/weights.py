"""What names the weights of a model, from its files."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

from prefixctl.config import Config, TargetConfig
from prefixctl.errors import InputError

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
PIECE_BYTES = 4096
STRIDE_BYTES = 4 * 2**20
NAME_THEM = "name them with `targets.<name>.weights_fingerprint`"
_HEADER_LENGTH = struct.Struct("<Q")


def weights_of(config: Config, target: TargetConfig) -> str | None:
    """What names a target's weights, None if nothing on this host does."""
    if target.weights_fingerprint is not None:
        return target.weights_fingerprint
    local = next((p for p in (Path(target.model), config.root / target.model) if p.is_dir()), None)
    try:
        return fingerprint(local or weights_folder(target.model, target.revision))
    except InputError:
        return None


def weights_folder(model: str, revision: str | None) -> Path:
    """Where the files of the weights lie.

    Raises:
        InputError: If they are not on this host.
    """
    if Path(model).is_dir():
        return Path(model)
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - not for local folders

        return Path(snapshot_download(model, revision=revision, local_files_only=True))
    except (ImportError, OSError, ValueError) as exc:
        raise InputError(
            f"the weights of '{model}' are not on this host as files, so nothing tells this "
            "model's blocks on the disk from another's",
            hint=NAME_THEM,
        ) from exc


def fingerprint(folder: Path) -> str:
    """A digest of the weights' files.

    Of a safetensors file the head, the middle and the tail of every tensor and a piece of every
    `STRIDE_BYTES` are read: what changes a tensor as a whole, or so many bytes anywhere, is seen.
    Every other file is read whole.

    Raises:
        InputError: If there is no such file, or one of them is damaged.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix in WEIGHT_SUFFIXES and p.is_file())
    if not files:
        raise InputError("no file of weights", path=str(folder), hint=NAME_THEM)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            if path.suffix == ".safetensors":
                _sample(file, path, digest)
            else:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def _sample(file: BinaryIO, path: Path, digest: Any) -> None:
    """Add a safetensors file: its header, and pieces of each tensor."""
    size = path.stat().st_size
    (length,) = _HEADER_LENGTH.unpack(file.read(_HEADER_LENGTH.size).ljust(8, b"\xff"))
    try:
        header = file.read(length) if length <= size else b""
        tensors = {n: t for n, t in json.loads(header).items() if n != "__metadata__"}
        spans = sorted((*map(int, t["data_offsets"]),) for t in tensors.values())
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise InputError("no whole safetensors file", path=str(path)) from exc
    digest.update(header)
    start = _HEADER_LENGTH.size + length
    for at in sorted({at for begin, end in spans for at in _pieces(begin, end)}):
        file.seek(start + at)
        digest.update(file.read(PIECE_BYTES))


def _pieces(begin: int, end: int) -> list[int]:
    """Where to look into a tensor: at both ends, in the middle, and once in each stride."""
    last = max(end - PIECE_BYTES, begin)
    return [begin, (begin + last) // 2, last, *range(begin, last, STRIDE_BYTES)]
