from __future__ import annotations

from pathlib import Path

import pytest

from prefixctl.config import Config, load_config
from prefixctl.errors import ConfigError, ExitCode

SNIPPET = (
    "prefix_cache: {enabled: true, block_by: token, blocks: [system_prompt, few_shot], "
    "versioned: true, evict: {policy: lru_freq, max_block_mb: 512}, fallback: partial}\n"
)


def load(tmp_path: Path, text: str | bytes) -> Config:
    path = tmp_path / "prefixctl.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_config(path)


def test_the_published_snippet_is_accepted_as_it_stands(tmp_path: Path) -> None:
    config = load(tmp_path, SNIPPET)
    assert config.prefix_cache.blocks == ("system_prompt", "few_shot")
    assert config.prefix_cache.evict.policy == "lru_freq"


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, "prompts: p\n")
    assert config.prompts_dir == tmp_path / "p"
    assert config.lock_path == tmp_path / "p" / "prefixes.lock.yaml"


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_config(start=tmp_path).prefix_cache.enabled


@pytest.mark.parametrize(
    ("text", "line", "words", "hint"),
    [
        ("prompts: a\nprefix_cach: {}\n", 2, "unknown key 'prefix_cach'", "prefix_cache"),
        ("prefix_cache:\n  evict:\n    polcy: lru\n", 3, "polcy", "policy"),
        ("targets:\n  a:\n    model: m\n    block_sise: 16\n", 4, "block_sise", "block_size"),
        ("targets:\n  a: {}\n", 2, "'targets.a.model' is missing", ""),
        ("prefix_cache:\n  blocks: [user]\n", 2, "never shared", ""),
        ("server:\n  port: 99999\n", 2, "server.port", ""),
        ("lint: {block_size: 2000000}\n", 1, "less than or equal to 1048576", ""),
        ("a: [1\nb: 2\n", 2, "broken YAML", ""),
        ("prompts: a\nprompts: b\n", 2, "stands twice (first on line 1)", ""),
        ("root: /\n", 1, "unknown key 'root'", ""),
        ("- 1\n", 1, "", ""),
        (b"prompts: a\nlock: \xff\n", 2, "not UTF-8", ""),
    ],
)
def test_a_wrong_file_names_line_and_way_out(
    tmp_path: Path, text: str | bytes, line: int | None, words: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    error = caught.value
    assert error.exit_code is ExitCode.BAD_INPUT
    assert error.path == str(tmp_path / "prefixctl.yaml")
    assert error.line == line
    assert words in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize(("word", "sharing"), [("on", "on"), ("off", "off"), ('"on"', "on")])
def test_a_bare_word_of_yaml_is_taken_as_written(tmp_path: Path, word: str, sharing: str) -> None:
    text = f"tenancy: {{sharing: {word}}}\ngateway: {{enabled: true}}\n"
    assert load(tmp_path, text).tenancy.sharing == sharing


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        load_config(tmp_path / "nowhere.yaml")


def test_a_bomb_of_aliases_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 300)}]" for i in range(1, 8)]
    with pytest.raises(ConfigError, match="aliases"):
        load(tmp_path, "\n".join(lines))


def test_an_unknown_target_gets_a_suggestion(tmp_path: Path) -> None:
    config = load(tmp_path, "targets:\n  prod: {model: m}\n")
    with pytest.raises(ConfigError) as caught:
        config.target("prd")
    assert caught.value.hint == "did you mean prod?"


def test_several_targets_must_be_chosen_from(tmp_path: Path) -> None:
    config = load(tmp_path, "targets:\n  a: {model: m}\n  b: {model: m}\n")
    assert config.only_target("b")[0] == "b"
    with pytest.raises(ConfigError, match="several targets"):
        config.only_target()


def test_every_field_is_documented() -> None:
    pending, seen = [Config], set()
    while pending:
        model = pending.pop()
        for name, info in model.model_fields.items():
            assert info.description, f"{model.__name__}.{name} has no description"
            for part in (info.annotation, *getattr(info.annotation, "__args__", ())):
                if (
                    isinstance(part, type)
                    and part.__module__.startswith(Config.__module__)
                    and (part not in seen and hasattr(part, "model_fields"))
                ):
                    seen.add(part)
                    pending.append(part)
    assert len(seen) >= 8
