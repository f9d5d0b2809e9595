"""Shared fixtures: a small real tokenizer, and a project with two governed prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample import PROMPT_YAML, WORDS, write_prompt

from prefixctl.demo.tokenizer import make_tokenizer


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained byte-level BPE with a ChatML-style template."""
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(folder, [WORDS * 3, PROMPT_YAML], vocab_size=600)
    return folder


@pytest.fixture
def project(tmp_path: Path, tokenizer_dir: Path) -> Path:
    """A folder with prefixctl.yaml, one target and the prompt ``support``."""
    (tmp_path / "prefixctl.yaml").write_text(
        "targets:\n"
        "  tiny:\n"
        "    model: tiny-model\n"
        f"    tokenizer: {tokenizer_dir}\n"
        "    block_size: 16\n"
    )
    write_prompt(tmp_path / "templates" / "support")
    return tmp_path
