"""What names the weights on the disk, so that another model's blocks are never served."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's, at import
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder: small tensors, and a large one of 12 MiB."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    tensors = {f"layer.{n}.norm": torch.rand(64) for n in range(40)}
    save_file(tensors | {"embed": torch.rand(3 * 2**20)}, tmp_path / "model.safetensors")
    return tmp_path


def change(path: Path, at: int, size: int) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + size] = bytes(255 - value for value in data[at : at + size])
    path.write_bytes(data)


def test_every_tensor_that_changes_makes_other_weights(folder):
    import torch
    from safetensors.torch import load_file, save_file

    from prefixctl.engine.weights import fingerprint

    file = folder / "model.safetensors"
    before, tensors, seen = fingerprint(folder), load_file(file), set()
    assert fingerprint(folder) == before
    for name in tensors:
        save_file(tensors | {name: tensors[name] + torch.tensor(0.001)}, file)
        seen.add(fingerprint(folder))
    assert before not in seen
    assert len(seen) == len(tensors)


def test_a_part_of_a_large_tensor_as_long_as_a_stride_is_seen(folder):
    from prefixctl.engine.weights import STRIDE_BYTES, fingerprint

    file = folder / "model.safetensors"
    before, whole = fingerprint(folder), file.read_bytes()
    for at in range(100_000, len(whole) - STRIDE_BYTES, 1_000_003):
        change(file, at, STRIDE_BYTES + 4096)
        assert fingerprint(folder) != before, f"{at:,} bytes into the file"
        file.write_bytes(whole)
    assert fingerprint(folder) == before


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".gguf"])
def test_other_files_are_read_whole(tmp_path, suffix):
    from prefixctl.engine.weights import fingerprint

    file = tmp_path / f"model{suffix}"
    file.write_bytes(bytes(3_000_000))
    before = fingerprint(tmp_path)
    change(file, 1_234_567, 1)
    assert fingerprint(tmp_path) != before


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 4, b"\xff" * 64, (5).to_bytes(8, "little") + b"[1,2]", b"\x10" + bytes(7)]
)
def test_a_damaged_file_of_weights_names_nothing(tmp_path, data):
    from prefixctl.engine.weights import fingerprint
    from prefixctl.errors import InputError

    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError, match="no whole safetensors file"):
        fingerprint(tmp_path)


def test_without_weights_the_operator_has_to_name_them(tmp_path):
    from prefixctl.engine.weights import fingerprint
    from prefixctl.errors import InputError

    with pytest.raises(InputError, match="no file of weights") as caught:
        fingerprint(tmp_path)
    assert "weights_fingerprint" in str(caught.value.hint)


def test_only_the_adapter_that_is_named_uses_the_tiers(tmp_path, folder):
    from types import SimpleNamespace

    from prefixctl.engine.weights import fingerprint
    from prefixctl.vllm_plugin.tiers.connector import GovernedConnector

    other = tmp_path / "other"
    other.mkdir()
    (other / "adapter_model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    connector = GovernedConnector.__new__(GovernedConnector)
    connector._adapter, connector._adapters, connector._secret = fingerprint(other), {}, None
    connector.connector_scheduler = SimpleNamespace(on_new_request=lambda _: None)

    def skips(path: Path, number: int) -> bool:
        lora = SimpleNamespace(lora_name="a", lora_path=str(path), lora_int_id=number)
        request = SimpleNamespace(
            sampling_params=None, cache_salt=None, lora_request=lora, kv_transfer_params=None
        )
        connector.on_new_request(request)
        return request.kv_transfer_params is not None

    assert not skips(other, 1)
    assert skips(folder, 2), "another adapter"
    assert skips(tmp_path / "gone", 3)
    change(other / "adapter_model.safetensors", 100_000, 5_000_000)
    assert skips(other, 4), "it was trained again in place"
