"""The pure rules: lineage, serving order, retention, what a change makes cold, key material."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixctl.core.changes import (
    BLOCK_DIGEST_BYTES,
    block_chain,
    changed_parts,
    compare_target,
    material_record,
)
from prefixctl.core.keys import KeyMaterial, TargetMaterial
from prefixctl.core.prompt import Parameter, Prompt, Section, SectionKind, Volatility
from prefixctl.core.serving import Serving, is_expired
from prefixctl.core.versions import (
    PrefixVersion,
    Signature,
    TargetRecord,
    content_of,
    lineage_fault,
    successor,
)
from prefixctl.ids import PromptName

NAME = PromptName("support")
SIGNATURE = Signature(reason="r", author="Ann", date=datetime(2026, 1, 1, tzinfo=UTC))
MATERIAL = TargetMaterial(
    model="m",
    revision="main",
    weights_fingerprint="sha256:aa",
    tokenizer_digest="sha256:bb",
    chat_template_digest="sha256:cc",
    template_kwargs={"thinking": False},
    adapter_digest="sha256:dd",
    dtype="bfloat16",
    kv_dtype="auto",
    block_size=16,
    hash_algorithm="sha256",
    hash_seed="0",
)
IDS = tuple(range(70))


def prompt(text: bytes = b"Be brief.", *, name: str = "support", **changes: object) -> Prompt:
    made = Prompt(
        name=PromptName(name),
        sections=(
            Section(kind=SectionKind.SYSTEM_PROMPT, file="system.md", role="system"),
            Section(kind=SectionKind.USER, file="user.md.j2", role="user"),
        ),
        parameters={"q": Parameter(name="q", scope=Volatility.REQUEST)},
        files={"prompt.yaml": b"p", "system.md": text, "user.md.j2": b"{{ q }}"},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def record(ids: tuple[int, ...] = IDS, material: TargetMaterial = MATERIAL) -> TargetRecord:
    size = material.block_size
    key = KeyMaterial(target=material, section_kinds=("system_prompt",), token_ids=ids)
    return TargetRecord(
        key=key.prefix_key(),
        shared_tokens=len(ids),
        request_tokens=len(ids) + 5,
        block_size=size,
        full_blocks=len(ids) // size,
        expected_hit_tokens=len(ids) // size * size,
        governed=True,
        material=material_record(material),
        blocks=block_chain(ids, size),
    )


def lineage(count: int) -> list[PrefixVersion]:
    entries: list[PrefixVersion] = []
    for i in range(count):
        content = content_of(prompt(b"text %d" % i))
        before = entries[-1] if entries else None
        entries.append(successor(before, content, {"t": record()}, SIGNATURE))
    return entries


class TestLineage:
    def test_a_chain_holds(self) -> None:
        assert lineage_fault(NAME, lineage(5)) is None
        assert lineage_fault(NAME, []) is None

    @given(st.integers(0, 4), st.sampled_from(["content", "targets", "version", "parent", "drop"]))
    def test_any_edit_is_found(self, place: int, part: str) -> None:
        entries = lineage(6)
        entry = entries[place]
        other = content_of(prompt(b"forged"))
        edits: dict[str, PrefixVersion] = {
            "content": replace(entry, content=other),
            "targets": replace(entry, targets={"t": record(IDS[:-1])}),
            "version": replace(entry, version=9),
            "parent": replace(entry, parent=other.digest),
        }
        entries[place : place + 1] = [edits[part]] if part in edits else []
        assert lineage_fault(NAME, entries) is not None

    def test_a_forged_entry_with_a_fitting_id_breaks_the_chain_behind_it(self) -> None:
        entries = lineage(3)
        forged = successor(entries[0], content_of(prompt(b"forged")), {}, SIGNATURE)
        fault = lineage_fault(NAME, [entries[0], forged, entries[2]])
        assert fault is not None
        assert "broken at version 3" in fault.message

    def test_one_version_twice_names_both_and_the_way_out(self) -> None:
        entries = lineage(2)
        ours = replace(entries[1], signature=replace(SIGNATURE, author="Bob", reason="tone"))
        fault = lineage_fault(NAME, [*entries, ours])
        assert fault is not None
        assert fault.indices == (1, 2)
        assert "two versions 2, bumped by Ann (r) and Bob (tone)" in fault.message
        assert "keep one of the two entries" in fault.hint

    def test_words_about_a_version_are_not_its_identity(self) -> None:
        entry = lineage(1)[0]
        assert replace(entry, signature=replace(SIGNATURE, note="typo fixed")).expected_id() == (
            entry.id
        )


class TestServing:
    @given(st.lists(st.one_of(st.none(), st.integers(1, 5)), max_size=20))
    def test_live_and_previous_are_two_versions(self, steps: list[int | None]) -> None:
        serving = Serving()
        for version in steps:
            if version is not None:
                serving = serving.published(version)
                assert serving.live == version
            elif serving.previous is not None:
                goal = serving.previous
                serving = serving.rolled_back()
                assert serving.live == goal
            assert serving.live is None or serving.live != serving.previous

    def test_nothing_to_go_back_to(self) -> None:
        with pytest.raises(ValueError, match="no earlier"):
            Serving(stack=(1,)).rolled_back()

    def test_removed_versions_leave_no_gap(self) -> None:
        assert Serving(stack=(3, 1, 3, 2)).without({1}).stack == (3, 2)

    @pytest.mark.parametrize(("days", "gone"), [(6.99, False), (7, True), (-1, False)])
    def test_retention(self, days: float, gone: bool) -> None:
        retired = datetime(2026, 1, 1, tzinfo=UTC)
        now = retired + timedelta(days=days)
        assert is_expired(retired, now, timedelta(days=7)) is gone
        assert not is_expired(None, now, timedelta(days=7))


class TestChanges:
    @given(st.lists(st.integers(0, 300), max_size=90), st.integers(0, 89), st.integers(1, 20))
    def test_the_first_differing_block_is_found_from_the_chain(
        self, ids: list[int], place: int, size: int
    ) -> None:
        chain = block_chain(ids, size)
        assert len(chain) == len(ids) // size * BLOCK_DIGEST_BYTES
        if place < len(ids):
            other = [*ids[:place], 999, *ids[place + 1 :]]
            material = replace(MATERIAL, block_size=size)
            found = compare_target(
                "t", record(tuple(ids), material), record(tuple(other), material)
            )
            assert found is not None
            full = len(ids) // size
            assert found.kept_blocks == min(place // size, full)
            assert found.cold_tokens == (full - found.kept_blocks) * size

    def test_longer_text_makes_nothing_cold(self) -> None:
        found = compare_target("t", record(IDS), record((*IDS, *IDS)))
        assert found is not None
        assert (found.kept_blocks, found.cold_tokens, found.new_tokens) == (4, 0, 64)

    def test_another_model_makes_all_cold_and_is_named(self) -> None:
        found = compare_target("t", record(), record(material=replace(MATERIAL, model="m2")))
        assert found is not None
        assert found.causes == ("model m -> m2",)
        assert (found.kept_blocks, found.cold_blocks, found.cold_tokens) == (0, 4, 64)

    def test_another_template_with_the_same_tokens_keeps_the_engines_blocks(self) -> None:
        other = replace(MATERIAL, chat_template_digest="sha256:ee")
        found = compare_target("t", record(), record(material=other))
        assert found is not None
        assert found.causes == ("chat_template sha256:cc -> sha256:ee",)
        assert (found.kept_blocks, found.cold_tokens) == (4, 0)

    def test_the_hash_seed_is_not_written_down(self) -> None:
        recorded = material_record(replace(MATERIAL, hash_seed="planted-seed"))
        assert "planted-seed" not in str(recorded)

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            (prompt(b"x"), "section 1, system_prompt (system.md)"),
            (prompt(sections=prompt().sections[::-1]), "the order of the sections"),
            (
                prompt(
                    sections=prompt().sections[:1],
                    files={"prompt.yaml": b"p", "system.md": b"Be brief."},
                ),
                "section 2, user (user.md.j2), removed",
            ),
            (
                prompt(parameters={"q": Parameter(name="q", scope=Volatility.USER)}),
                "parameter q",
            ),
            (
                prompt(files={**prompt().files, "faq.md": b"x"}),
                "included file faq.md, added",
            ),
        ],
    )
    def test_parts_are_named(self, changed: Prompt, words: str) -> None:
        assert changed_parts(content_of(prompt()), content_of(changed)) == (words,)

    def test_another_type_of_section_is_another_content(self) -> None:
        first, user = prompt().sections
        other = prompt(sections=(replace(first, kind=SectionKind.DOCUMENT), user))
        assert changed_parts(content_of(prompt()), content_of(other)) == (
            "section 1, document (system.md)",
        )

    def test_a_rename_changes_nothing(self) -> None:
        assert content_of(prompt(name="b")) == content_of(prompt())


class TestKeyMaterial:
    """The case `key-material`."""

    @pytest.mark.parametrize(
        "part",
        [
            {"model": "m2"},
            {"revision": "v2"},
            {"weights_fingerprint": "sha256:ff"},
            {"tokenizer_digest": "sha256:ff"},
            {"chat_template_digest": "sha256:ff"},
            {"template_kwargs": {"thinking": True}},
            {"adapter_digest": None},
            {"dtype": "float32"},
            {"kv_dtype": "fp8"},
            {"block_size": 32},
            {"hash_algorithm": "sha256_cbor"},
            {"hash_seed": None},
            {"engine_scheme": "vllm-2"},
        ],
        ids=lambda part: next(iter(part)),
    )
    def test_any_part_of_the_target_changes_the_key_and_is_named(
        self, part: dict[str, object]
    ) -> None:
        other = replace(MATERIAL, **part)  # type: ignore[arg-type]
        assert record(material=other).key != record().key
        found = compare_target("t", record(), record(material=other))
        assert found is not None
        assert len(found.causes) == 1

    def test_section_types_and_tokens_change_the_key(self) -> None:
        def key(kinds: tuple[str, ...], ids: tuple[int, ...]) -> str:
            return KeyMaterial(target=MATERIAL, section_kinds=kinds, token_ids=ids).prefix_key()

        keys = {
            key(("system_prompt",), (1, 2)),
            key(("document",), (1, 2)),
            key(("system_prompt",), (2, 1)),
            key(("system_prompt",), (12,)),
        }
        assert len(keys) == 4

    @given(st.lists(st.integers(0, 999)), st.lists(st.integers(0, 999)))
    def test_equal_keys_mean_equal_tokens(self, a: list[int], b: list[int]) -> None:
        same = record(tuple(a)).key == record(tuple(b)).key
        assert same == (a == b)
