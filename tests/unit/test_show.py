"""`show`, `diff` and `history` as library calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixctl.api.versions import (
    bump_prompts,
    diff_versions,
    prompt_history,
    publish_prompts,
    rollback_prompt,
    show_prompt,
)
from prefixctl.config import Config, load_config
from prefixctl.core.blocks import common_prefix_tokens
from prefixctl.core.prompt import Parameter, Volatility
from prefixctl.errors import RegistryError, UsageError
from prefixctl.prompts.load import load_prompt
from prefixctl.prompts.render import example_values, render
from prefixctl.prompts.target import load_target, measure
from prefixctl.registry.diff import FileStatus
from prefixctl.registry.history import Standing
from prefixctl.registry.spans import Region, cut, find_regions

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def config_of(project: Path) -> Config:
    return load_config(project / "prefixctl.yaml")


def system(project: Path) -> Path:
    return project / "templates" / "support" / "system.md"


def release(project: Path, text: bytes | None = None, *, publish: bool = True) -> None:
    if text is not None:
        system(project).write_bytes(text)
    bump_prompts(config_of(project), reason="r", author="Ann", note="n", now=NOW)
    if publish:
        publish_prompts(config_of(project), by="Ann", now=NOW)


class TestShow:
    def test_the_spans_are_the_text_of_the_request(self, project: Path) -> None:
        shown = show_prompt(config_of(project), "support")
        target = load_target(config_of(project), "tiny")
        prompt = load_prompt(project / "templates" / "support")
        request = render(prompt, example_values(prompt, 0))
        assert "".join(s.text for s in shown.spans) == target.tokenizer.render(request)
        assert shown.alignment is not None
        assert shown.alignment.request_tokens == len(target.tokenizer.token_ids(request))
        measured = measure(prompt, target, config_of(project).prefix_cache)
        assert shown.alignment.shared_tokens == measured.alignment.shared_tokens

    def test_blocks_and_the_end_of_the_prefix_are_marked(self, project: Path) -> None:
        shown = show_prompt(config_of(project), "support")
        assert shown.alignment is not None
        blocks = [s.block for s in shown.spans if s.block is not None]
        assert blocks == list(range(1, shown.alignment.request_tokens // 16 + 1))
        ends = [i for i, s in enumerate(shown.spans) if s.ends_shared]
        assert len(ends) == 1
        before = "".join(s.text for s in shown.spans[: ends[0] + 1])
        target = load_target(config_of(project), "tiny")
        assert len(target.tokenizer.encode(before)) == shown.alignment.shared_tokens
        question = [s for s in shown.spans if s.volatility is Volatility.REQUEST]
        assert "".join(s.text for s in question) == "Where is my order?"
        assert all(s.volatility is Volatility.CONSTANT for s in shown.spans[: ends[0] + 1])

    def test_a_block_mark_stands_behind_its_last_token(self, project: Path) -> None:
        shown = show_prompt(config_of(project), "support")
        encode = load_target(config_of(project), "tiny").tokenizer.encode
        text = "".join(s.text for s in shown.spans)
        place = 0
        for span in shown.spans:
            place += len(span.text)
            if span.block is not None:
                assert common_prefix_tokens(encode(text), encode(text[:place])) >= span.block * 16

    def test_versions_come_from_the_registry(self, project: Path) -> None:
        release(project, b"Old words. " * 20)
        release(project, b"New words. " * 20)
        for ref, words in (("1", "Old"), ("previous", "Old"), ("live", "New"), (None, "New")):
            shown = show_prompt(config_of(project), "support", ref)
            assert words in "".join(s.text for s in shown.spans)

    def test_a_version_whose_text_is_gone(self, project: Path) -> None:
        release(project, b"Old words. " * 20, publish=False)
        release(project, b"New words. " * 20, publish=False)
        with pytest.raises(RegistryError, match="neither in the registry nor in the work tree"):
            show_prompt(config_of(project), "support", "1")

    @pytest.mark.parametrize("ref", ["x", "1.5", "²"])
    def test_no_version(self, project: Path, ref: str) -> None:
        with pytest.raises(UsageError, match="is no version"):
            show_prompt(config_of(project), "support", ref)

    def test_without_a_target(self, project: Path) -> None:
        (project / "prefixctl.yaml").write_text("{}")
        shown = show_prompt(config_of(project), "support")
        assert (shown.target, shown.alignment) == (None, None)
        assert {s.volatility for s in shown.spans} == {Volatility.CONSTANT, Volatility.REQUEST}


class TestSpans:
    PARAMETERS: Mapping[str, Parameter] = {
        "day": Parameter(name="day", scope=Volatility.DAY),
        "user": Parameter(name="user", scope=Volatility.USER),
    }

    def test_regions_by_marks(self) -> None:
        values = {"day": "Mon", "user": "Ann"}
        regions = find_regions(
            "Mon: hi Ann",
            values,
            self.PARAMETERS,
            lambda v: f"{v['day']}: hi {v['user']}",
        )
        assert [(r.start, r.end, r.volatility.label) for r in regions] == [
            (0, 3, "day"),
            (8, 11, "user"),
        ]

    def test_regions_by_difference_where_the_template_trips_over_marks(self) -> None:
        values = {"day": "Mon", "user": "Ann"}
        regions = find_regions(
            "on Mon 3 Ann.",
            values,
            self.PARAMETERS,
            lambda v: f"on {v['day']} {len(v['day'])} {v['user']}.",
        )
        assert [(r.start, r.end, r.volatility.label) for r in regions] == [
            (3, 8, "day"),
            (9, 12, "user"),
        ]

    @given(
        st.text("ab ", max_size=40),
        st.lists(st.integers(1, 4), max_size=20),
        st.integers(1, 5),
        st.integers(0, 20),
        st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=3),
    )
    def test_nothing_is_lost_or_doubled(
        self,
        text: str,
        lengths: list[int],
        size: int,
        shared: int,
        places: list[tuple[int, int]],
    ) -> None:
        ends, place = [], 0
        for length in lengths:
            place += length
            if place > len(text):
                break
            ends.append(place)
        regions = [
            Region(start=min(a, b), end=max(a, b), volatility=Volatility.DAY)
            for a, b in places
            if max(a, b) <= len(text)
        ]
        shared = min(shared, len(ends))
        spans = cut(text, regions, ends, block_size=size, shared_tokens=shared)
        assert "".join(s.text for s in spans) == text
        assert [s.block for s in spans if s.block] == list(range(1, len(ends) // size + 1))
        assert sum(s.ends_shared for s in spans) == bool(shared)
        day = {i for r in regions for i in range(r.start, r.end)}
        marked = [s.volatility is Volatility.DAY for s in spans for _ in s.text]
        assert {i for i, m in enumerate(marked) if m} == day


class TestDiff:
    def test_the_work_tree_against_the_newest(self, project: Path) -> None:
        release(project)
        text = system(project).read_text()
        system(project).write_text(text.replace("receipt. Be kind", "receipt! Be kind", 1))
        found = diff_versions(config_of(project), "support")
        assert (found.old, found.new) == ("1", "work tree")
        assert found.parts == ("section 1, system_prompt (system.md)",)
        states = {f.file: f.status for f in found.files}
        assert states.pop("system.md") is FileStatus.CHANGED
        assert set(states.values()) == {FileStatus.SAME}
        target = found.targets[0]
        assert target.exact
        assert target.change is not None
        assert target.first_token is not None
        assert target.first_token // 16 == target.change.kept_blocks

    def test_without_old_bytes_the_lock_knows_the_blocks(self, project: Path) -> None:
        release(project, b"Old words and more. " * 20, publish=False)
        text = system(project).read_bytes()
        release(project, text[:200] + b"X" + text[201:], publish=False)
        found = diff_versions(config_of(project), "support", "1", "2")
        assert found.files == ()
        assert "neither in the registry nor in the work tree" in found.remarks[0]
        target = found.targets[0]
        assert (target.exact, target.first_token) == (False, None)
        assert target.change is not None
        assert target.change.kept_blocks > 0
        publish_prompts(config_of(project), by="Ann")
        assert diff_versions(config_of(project), "support", "1", "live").targets[0] == target

    def test_invisible_bytes_are_made_visible(self, project: Path) -> None:
        release(project, b"one\ntwo\n" * 20)
        system(project).write_bytes(b"\xef\xbb\xbfone\r\ntwo\n" + b"one\ntwo\n" * 19)
        found = diff_versions(config_of(project), "support")
        lines = next(f.lines for f in found.files if f.file == "system.md")
        assert "+<BOM>one␍" in lines

    def test_same(self, project: Path) -> None:
        release(project)
        found = diff_versions(config_of(project), "support", "1", "1")
        assert found.parts == ()
        assert found.targets[0].change is None

    def test_never_bumped(self, project: Path) -> None:
        with pytest.raises(RegistryError, match="has no version yet"):
            diff_versions(config_of(project), "support")
        with pytest.raises(RegistryError, match="no version 4"):
            diff_versions(config_of(project), "support", "4")

    def test_a_target_that_cannot_be_loaded_is_remarked(self, project: Path) -> None:
        release(project)
        path = project / "prefixctl.yaml"
        path.write_text(path.read_text().replace("tokenizer: ", "tokenizer: /gone"))
        found = diff_versions(config_of(project), "support", "1", "1")
        assert "tiny cannot be loaded" in found.remarks[0]
        assert not found.targets[0].exact


class TestHistory:
    def test_standing_moves_and_stability(self, project: Path) -> None:
        for text in (b"One. " * 40, b"Two. " * 40, b"Three. " * 40):
            release(project, text)
        (project / "templates" / "support" / "user.md.j2").write_text("{{ question }}!")
        release(project, publish=False)
        rollback_prompt(config_of(project), "support", by="Bob", now=NOW + timedelta(days=1))
        found = prompt_history(config_of(project), "support")
        assert [v.standing for v in found.versions] == [
            Standing.PREVIOUS,
            Standing.LIVE,
            Standing.RETIRED,
            Standing.ABSENT,
        ]
        assert found.versions[0].change is None
        assert found.versions[3].change is not None
        assert found.versions[3].change.targets == ()
        assert [(m.before, m.after, m.by) for m in found.moves][-1] == (3, 2, "Bob")
        stability = found.stability[0]
        assert (stability.releases, stability.changed) == (3, 2)
        assert stability.share == pytest.approx(2 / 3)

    def test_without_a_registry(self, project: Path) -> None:
        release(project, publish=False)
        found = prompt_history(config_of(project), "support")
        assert [v.standing for v in found.versions] == [Standing.ABSENT]
        assert found.moves == ()

    def test_names(self, project: Path) -> None:
        assert prompt_history(config_of(project), "support").versions == ()
        with pytest.raises(UsageError, match="no prompt"):
            prompt_history(config_of(project), "suport")
