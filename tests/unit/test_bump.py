"""`bump` and `bump --check` as library calls."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from prefixctl.api.versions import bump_prompts, check_prompts
from prefixctl.config import Config, load_config
from prefixctl.core.blocks import common_prefix_tokens
from prefixctl.core.changes import Change
from prefixctl.errors import (
    LockError,
    NothingToDoError,
    PromptError,
    TokenizerError,
    UsageError,
)
from prefixctl.ids import PromptName
from prefixctl.prompts.load import load_prompt
from prefixctl.prompts.target import load_target, measure
from prefixctl.registry.bump import BumpResult, unbumped
from prefixctl.sources.lockfile import load_lock

NAME = PromptName("support")
NOW = datetime(2026, 3, 1, 12, 0, 0, 999, tzinfo=UTC)


def config_of(project: Path) -> Config:
    return load_config(project / "prefixctl.yaml")


def bump(project: Path, reason: str = "why", **words: str) -> BumpResult:
    return bump_prompts(config_of(project), reason=reason, author="Ann", now=NOW, **words)


def edit(project: Path, old: str, new: str, file: str = "system.md") -> None:
    path = project / "templates" / "support" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def set_target(project: Path, old: str, new: str) -> None:
    path = project / "prefixctl.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def only_change(project: Path) -> Change:
    drifts = check_prompts(config_of(project)).drifts
    assert len(drifts) == 1
    assert drifts[0].change is not None
    return drifts[0].change


class TestBump:
    def test_the_first_version_needs_no_reason(self, project: Path) -> None:
        result = bump(project, "", approver="Bob", note="n")
        entry = result.bumped[0].entry
        assert (entry.version, entry.parent) == (1, None)
        assert entry.signature.reason == "first version"
        assert (entry.signature.approver, entry.signature.note) == ("Bob", "n")
        assert load_lock(config_of(project).lock_path).newest(NAME) == entry

    def test_the_entry_says_what_the_prompt_is_on_the_target(self, project: Path) -> None:
        record = bump(project).bumped[0].entry.targets["tiny"]
        config = config_of(project)
        prompt = load_prompt(project / "templates" / "support")
        measured = measure(prompt, load_target(config, "tiny"), config.prefix_cache)
        assert record.key == measured.key
        assert record.shared_tokens == measured.alignment.shared_tokens > 16
        assert record.full_blocks == record.shared_tokens // 16
        assert len(record.blocks) == 4 * record.full_blocks

    def test_nothing_changed_writes_nothing(self, project: Path) -> None:
        bump(project)
        path = config_of(project).lock_path
        before = path.read_bytes(), path.stat().st_mtime_ns
        result = bump(project)
        assert (result.bumped, result.unchanged) == ((), ("support",))
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before

    def test_entries_are_only_added(self, project: Path) -> None:
        bump(project)
        before = config_of(project).lock_path.read_text()
        edit(project, "short", "long")
        bump(project)
        after = config_of(project).lock_path.read_text()
        kept = before.removesuffix("  # end of support\n")
        assert after.startswith(kept)
        assert after.count("- version:") == 2

    def test_a_change_needs_a_reason(self, project: Path) -> None:
        bump(project)
        edit(project, "short", "long")
        with pytest.raises(UsageError, match="needs a reason"):
            bump(project, "")
        assert len(load_lock(config_of(project).lock_path).prompts[NAME]) == 1

    def test_a_rename_keeps_the_key(self, project: Path) -> None:
        first = bump(project).bumped[0].entry
        (project / "templates" / "support").rename(project / "templates" / "helpdesk")
        second = bump(project, "renamed").bumped[0]
        assert second.name == "helpdesk"
        assert second.entry.targets["tiny"].key == first.targets["tiny"].key
        assert second.entry.content == first.content

    def test_words_of_prompt_yaml_that_reach_nobody_are_no_change(self, project: Path) -> None:
        bump(project)
        edit(project, "A support agent.", "The best one.", "prompt.yaml")
        assert bump(project).bumped == ()

    @pytest.mark.parametrize("name", ["suport", "nothing-like-it"])
    def test_an_unknown_name(self, project: Path, name: str) -> None:
        with pytest.raises(UsageError, match=f"no prompt '{name}'") as caught:
            bump_prompts(config_of(project), [name], reason="r", author="a")
        assert caught.value.hint and "support" in caught.value.hint

    def test_a_broken_prompt_is_no_obstacle_to_another(self, project: Path) -> None:
        broken = project / "templates" / "broken"
        broken.mkdir()
        (broken / "prompt.yaml").write_text("sections: 3")
        named = bump_prompts(config_of(project), ["support"], reason="r", author="a")
        assert [b.name for b in named.bumped] == ["support"]
        with pytest.raises(PromptError):
            bump(project)

    def test_two_prompts_of_one_name(self, project: Path) -> None:
        other = project / "templates" / "z"
        other.mkdir()
        for file in (project / "templates" / "support").iterdir():
            (other / file.name).write_bytes(file.read_bytes())
        edit(project, "description", "name: z\ndescription", "prompt.yaml")
        with pytest.raises(PromptError, match="is the name of"):
            bump(project)

    def test_no_prompts_is_never_a_clean_pass(self, tmp_path: Path) -> None:
        with pytest.raises(NothingToDoError):
            check_prompts(Config().at(tmp_path))

    def test_without_targets_the_text_alone_is_versioned(self, project: Path) -> None:
        (project / "prefixctl.yaml").write_text("{}")
        assert bump(project).bumped[0].entry.targets == {}
        assert check_prompts(config_of(project)).drifts == ()

    def test_a_missing_tokenizer_is_an_error(self, project: Path) -> None:
        set_target(project, "tokenizer: ", "tokenizer: /gone")
        with pytest.raises(TokenizerError):
            bump(project)

    def test_a_word_that_is_no_text(self, project: Path) -> None:
        with pytest.raises(UsageError, match="reason is not Unicode"):
            bump(project, "\udc80")

    def test_a_broken_lock_is_left_alone(self, project: Path) -> None:
        path = config_of(project).lock_path
        path.write_text("<<<<<<< HEAD\n")
        with pytest.raises(LockError, match="conflict markers"):
            bump(project)
        assert path.read_text() == "<<<<<<< HEAD\n"


class TestCheck:
    def test_equal(self, project: Path) -> None:
        bump(project)
        result = check_prompts(config_of(project))
        assert (result.drifts, result.unchanged) == ((), ("support",))

    def test_never_bumped_is_drift(self, project: Path) -> None:
        drift = check_prompts(config_of(project)).drifts[0]
        assert (drift.name, drift.version, drift.change) == ("support", None, None)
        assert not config_of(project).lock_path.exists()

    @pytest.mark.parametrize(
        ("old", "new"),
        [("You are a careful", "You are a careless"), ("receipt. Be kind", "receipt! Be kind")],
    )
    def test_cold_tokens_are_exact_to_the_block(self, project: Path, old: str, new: str) -> None:
        config = config_of(project)
        target = load_target(config, "tiny")
        folder = project / "templates" / "support"
        before = measure(load_prompt(folder), target, config.prefix_cache)
        bump(project)
        edit(project, old, new)
        after = measure(load_prompt(folder), target, config.prefix_cache)
        change = only_change(project)
        assert change.content == ("section 1, system_prompt (system.md)",)
        found = change.targets[0]
        same = common_prefix_tokens(before.token_ids, after.token_ids)
        assert found.kept_blocks == same // 16
        assert found.cold_tokens == (before.alignment.full_blocks - same // 16) * 16
        assert found.new_tokens == (after.alignment.full_blocks - same // 16) * 16

    def test_it_writes_nothing(self, project: Path) -> None:
        bump(project)
        edit(project, "short", "long")
        before = {p: p.read_bytes() for p in project.rglob("*") if p.is_file()}
        check_prompts(config_of(project))
        assert {p: p.read_bytes() for p in project.rglob("*") if p.is_file()} == before

    def test_a_change_behind_the_prefix_makes_nothing_cold(self, project: Path) -> None:
        bump(project)
        (project / "templates" / "support" / "user.md.j2").write_text("{{ question }} Thanks.")
        change = only_change(project)
        assert change.content == ("section 4, user (user.md.j2)",)
        assert change.targets == ()

    @pytest.mark.parametrize(
        ("old", "new", "cause"),
        [
            ("model: tiny-model", "model: other", "model tiny-model -> other"),
            ("block_size: 16", "block_size: 32", "block_size 16 -> 32"),
            ("block_size: 16", "block_size: 16\n    kv_dtype: fp8", "kv_dtype auto -> fp8"),
        ],
    )
    def test_another_target_under_the_same_text(
        self, project: Path, old: str, new: str, cause: str
    ) -> None:
        bump(project)
        full = load_lock(config_of(project).lock_path).prompts[NAME][0].targets["tiny"].full_blocks
        set_target(project, old, new)
        change = only_change(project)
        assert change.content == ()
        assert change.targets[0].causes == (cause,)
        assert change.targets[0].cold_tokens == full * 16

    def test_a_new_target_and_one_that_went(self, project: Path) -> None:
        bump(project)
        set_target(project, "  tiny:", "  large:")
        change = only_change(project)
        assert [(t.target, t.causes, t.cold_tokens) for t in change.targets] == [
            ("large", ("new target",), 0)
        ]
        assert bump(project, "moved").bumped[0].entry.targets.keys() == {"large"}

    def test_governance_is_part_of_it(self, project: Path) -> None:
        bump(project)
        path = project / "prefixctl.yaml"
        path.write_text(path.read_text() + "prefix_cache:\n  min_tokens: 100000\n")
        assert only_change(project).targets[0].causes == ("no longer governed",)


def test_unbumped_for_lint(project: Path) -> None:
    path = config_of(project).lock_path
    folder = project / "templates" / "support"
    assert "has no version" in (unbumped(load_prompt(folder), load_lock(path)) or "")
    bump(project)
    assert unbumped(load_prompt(folder), load_lock(path)) is None
    edit(project, "short", "long")
    assert unbumped(load_prompt(folder), load_lock(path)) == (
        "'support' changed since version 1: section 1, system_prompt (system.md)"
    )
