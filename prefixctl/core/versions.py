"""Versions of governed prompts: what an entry records, and its lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from prefixctl.core.prompt import Prompt, SectionKind, canonical_json, digest_of
from prefixctl.ids import Digest, PrefixKey, PromptName


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionRecord:
    """A section as a version records it. `sha256` is the hex digest of the source bytes."""

    kind: SectionKind
    role: str | None
    file: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All that makes the text of a version, as digests.

    Attributes:
        digest: `Prompt.content_digest`.
        sections: In prompt order.
        includes: Included file to the hex digest of its bytes.
        parameters: Name to a short digest of scope and value. It only names what changed; the
            content digest covers scope and value in full.
    """

    digest: Digest
    sections: tuple[SectionRecord, ...]
    includes: Mapping[str, str]
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """What a version is on one target.

    Attributes:
        key: The prefix key.
        shared_tokens: S.
        request_tokens: N of the shortest request.
        block_size: The cache unit in tokens.
        full_blocks: Whole units in the shared prefix.
        expected_hit_tokens: See `prefixctl.core.blocks`.
        governed: False below the length threshold or below one unit.
        material: The target's key material by field: plain words or digests.
        blocks: A chain of digests over the full blocks, see `prefixctl.core.changes`. From it
            the first block that differs is known without the old text.
    """

    key: PrefixKey
    shared_tokens: int
    request_tokens: int
    block_size: int
    full_blocks: int
    expected_hit_tokens: int
    governed: bool
    material: Mapping[str, str]
    blocks: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Who made a version, why and when. Not part of the version's id.

    Attributes:
        reason: Why the prompt changed.
        author: Who changed it.
        approver: Who agreed, if anybody was named.
        note: Anything else.
        date: When, in UTC.
    """

    reason: str
    author: str
    approver: str = ""
    note: str = ""
    date: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixVersion:
    """One entry of the lock: an immutable version of a prompt.

    Attributes:
        version: Counts from 1 for each prompt.
        id: Digest of the parent's id, the content and the targets.
        parent: The id of the version before, None for the first.
        content: What makes the text.
        targets: By target name.
        signature: Who, why, when.
    """

    version: int
    id: Digest
    parent: Digest | None
    content: Content
    targets: Mapping[str, TargetRecord]
    signature: Signature

    def expected_id(self) -> Digest:
        """The id that fits the entry's own words; another one means it was edited."""
        return entry_id(self.version, self.parent, self.content, self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The versions of all prompts, oldest first, as the lock file holds them."""

    path: str
    prompts: Mapping[PromptName, tuple[PrefixVersion, ...]]

    def newest(self, name: PromptName) -> PrefixVersion | None:
        """The newest version of a prompt, or None if it was never bumped."""
        entries = self.prompts.get(name, ())
        return entries[-1] if entries else None

    def find(self, name: PromptName, version: int) -> PrefixVersion | None:
        """A version of a prompt, or None."""
        return next((e for e in self.prompts.get(name, ()) if e.version == version), None)

    def with_entry(self, name: PromptName, entry: PrefixVersion) -> Lock:
        """The lock with one more version of a prompt at the end."""
        entries = (*self.prompts.get(name, ()), entry)
        return replace(self, prompts={**self.prompts, name: entries})


def content_of(prompt: Prompt) -> Content:
    """What a version records of a prompt's text."""
    sections = tuple(
        SectionRecord(kind=s.kind, role=s.role, file=s.file, sha256=_hex(prompt.files[s.file]))
        for s in prompt.sections
    )
    return Content(
        digest=prompt.content_digest(),
        sections=sections,
        includes={f: _hex(data) for f, data in prompt.included.items()},
        parameters={
            name: _hex(canonical_json([p.scope.label, p.value]))[:16]
            for name, p in sorted(prompt.parameters.items())
        },
    )


def entry_id(
    version: int,
    parent: Digest | None,
    content: Content,
    targets: Mapping[str, TargetRecord],
) -> Digest:
    """The id of an entry. A change to it, or to any version before it, gives another one."""
    on_targets = {
        name: {**asdict(record), "blocks": record.blocks.hex()} for name, record in targets.items()
    }
    return digest_of(canonical_json([version, parent, asdict(content), on_targets]))


def successor(
    before: PrefixVersion | None,
    content: Content,
    targets: Mapping[str, TargetRecord],
    signature: Signature,
) -> PrefixVersion:
    """The version that follows ``before``, or the first one."""
    version = before.version + 1 if before else 1
    parent = before.id if before else None
    return PrefixVersion(
        version=version,
        id=entry_id(version, parent, content, targets),
        parent=parent,
        content=content,
        targets=targets,
        signature=signature,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageFault:
    """Why a list of entries is no lineage.

    Attributes:
        indices: The entries it is about, from 0.
        message: What is wrong.
        hint: The way out.
    """

    indices: tuple[int, ...]
    message: str
    hint: str


def lineage_fault(name: PromptName, entries: Sequence[PrefixVersion]) -> LineageFault | None:
    """The first thing that breaks a prompt's lineage, or None.

    Two entries of one version are looked for first: they come from a merge, which breaks the
    chain as well, and the cause helps more than the effect.
    """
    first: dict[int, int] = {}
    for i, entry in enumerate(entries):
        if entry.version in first:
            return _twice(name, entries, first[entry.version], i)
        first[entry.version] = i
    parent: Digest | None = None
    for i, entry in enumerate(entries):
        fault = _entry_fault(name, entry, i + 1, parent)
        if fault:
            return LineageFault(indices=(i,), message=fault[0], hint=fault[1])
        parent = entry.id
    return None


def _hex(data: bytes) -> str:
    return digest_of(data).removeprefix("sha256:")


def _twice(
    name: PromptName, entries: Sequence[PrefixVersion], first: int, second: int
) -> LineageFault:
    makers = " and ".join(
        f"{e.signature.author or 'somebody'} ({e.signature.reason or 'no reason given'})"
        for e in (entries[first], entries[second])
    )
    return LineageFault(
        indices=(first, second),
        message=f"'{name}' has two versions {entries[first].version}, bumped by {makers}",
        hint="two branches bumped the same prompt: keep one of the two entries, delete the other "
        "and all behind it, merge the prompt's files, and run `prefixctl bump` again",
    )


def _entry_fault(
    name: PromptName, entry: PrefixVersion, expected: int, parent: Digest | None
) -> tuple[str, str] | None:
    restore = "the lock is append-only: restore the entries with git, then run `prefixctl bump`"
    if entry.version != expected:
        return f"'{name}' has version {entry.version} where {expected} belongs", restore
    if entry.parent != parent:
        before = f"version {expected - 1}" if parent else "none"
        return (
            f"the chain of '{name}' is broken at version {expected}: its parent is not {before}",
            restore,
        )
    if entry.id != entry.expected_id():
        return f"version {expected} of '{name}' was edited: its id does not fit it", restore
    return None
