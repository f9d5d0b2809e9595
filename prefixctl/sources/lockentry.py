"""One entry of the lock as a strict model, and as the bytes that a registry stores."""

from __future__ import annotations

import base64
import binascii
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from prefixctl.core.changes import BLOCK_DIGEST_BYTES
from prefixctl.core.prompt import SectionKind, canonical_json
from prefixctl.core.versions import (
    Content,
    PrefixVersion,
    SectionRecord,
    Signature,
    TargetRecord,
)
from prefixctl.errors import RegistryError
from prefixctl.ids import Digest, PrefixKey
from prefixctl.yamlfile import StrictModel

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
DigestText = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
KeyText = Annotated[str, StringConstraints(pattern=r"^pk1:[0-9a-f]{64}$")]


def _a_date(value: str) -> str:
    try:
        date = datetime.fromisoformat(value)
    except ValueError as exc:
        raise ValueError(f"'{value}' is no date: 2026-01-31T12:00:00+00:00") from exc
    if date.tzinfo is None:
        raise ValueError(f"'{value}' has no time zone")
    return value


def _a_chain(value: str) -> str:
    try:
        chain = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ValueError("not base64") from exc
    if len(chain) % BLOCK_DIGEST_BYTES:
        raise ValueError("cut off")
    return value


class SectionEntry(StrictModel):
    """A section of an entry."""

    kind: SectionKind = Field(description="The type of the section.")
    role: str | None = Field(default=None, description="Chat role, if it has one.")
    file: str = Field(description="Source, relative to the prompt folder.")
    sha256: Sha256 = Field(description="Digest of the source bytes.")


class TargetEntry(StrictModel):
    """An entry on one target."""

    key: KeyText = Field(description="The prefix key.")
    shared_tokens: int = Field(ge=0, description="Tokens that all requests share.")
    request_tokens: int = Field(ge=0, description="Tokens of the shortest request.")
    block_size: int = Field(gt=0, description="Tokens in a KV block.")
    full_blocks: int = Field(ge=0, description="Whole blocks in the shared tokens.")
    expected_hit_tokens: int = Field(ge=0, description="Cached tokens once it is resident.")
    governed: bool = Field(description="False if it is too short.")
    material: dict[str, str] = Field(description="The target's key material.")
    blocks: Annotated[str, AfterValidator(_a_chain)] = Field(
        default="", description="Chain of 4-byte digests over the full blocks, base64."
    )


class Entry(StrictModel):
    """One version of a prompt."""

    version: int = Field(ge=1, description="Counts from 1.")
    id: DigestText = Field(description="Digest of the parent's id, the content, the targets.")
    parent: DigestText | None = Field(description="The id of the version before.")
    content: DigestText = Field(description="Digest of all that makes the text.")
    sections: tuple[SectionEntry, ...] = Field(min_length=1, description="In prompt order.")
    includes: dict[str, Sha256] = Field(default_factory=dict, description="Included files.")
    parameters: dict[str, str] = Field(default_factory=dict, description="Short digests.")
    targets: dict[str, TargetEntry] = Field(default_factory=dict, description="By target name.")
    reason: str = Field(default="", description="Why.")
    author: str = Field(default="", description="Who.")
    approver: str = Field(default="", description="Who agreed.")
    note: str = Field(default="", description="Anything else.")
    date: Annotated[str, AfterValidator(_a_date)] = Field(description="When, ISO 8601.")

    def to_version(self) -> PrefixVersion:
        """The entry as the core knows it."""
        sections = tuple(
            SectionRecord(kind=s.kind, role=s.role, file=s.file, sha256=s.sha256)
            for s in self.sections
        )
        content = Content(
            digest=Digest(self.content),
            sections=sections,
            includes=self.includes,
            parameters=self.parameters,
        )
        return PrefixVersion(
            version=self.version,
            id=Digest(self.id),
            parent=None if self.parent is None else Digest(self.parent),
            content=content,
            targets={name: _record(target) for name, target in self.targets.items()},
            signature=Signature(
                reason=self.reason,
                author=self.author,
                approver=self.approver,
                note=self.note,
                date=datetime.fromisoformat(self.date).astimezone(UTC),
            ),
        )


def entry_value(entry: PrefixVersion) -> dict[str, Any]:
    """An entry as plain values, in the order in which the lock file writes them."""
    content, signature = entry.content, entry.signature
    sections = [{**asdict(s), "kind": s.kind.value} for s in content.sections]
    value: dict[str, Any] = {
        "version": entry.version,
        "id": entry.id,
        "parent": entry.parent,
        "content": content.digest,
        "sections": [{k: v for k, v in s.items() if v is not None} for s in sections],
    }
    if content.includes:
        value["includes"] = dict(content.includes)
    if content.parameters:
        value["parameters"] = dict(content.parameters)
    value["targets"] = {name: _target_value(record) for name, record in entry.targets.items()}
    words = {
        "reason": signature.reason,
        "author": signature.author,
        "approver": signature.approver,
        "note": signature.note,
    }
    value |= {key: text for key, text in words.items() if text}
    value["date"] = signature.date.astimezone(UTC).isoformat(timespec="seconds")
    return value


def encode_entry(entry: PrefixVersion) -> bytes:
    """An entry as the bytes that a registry stores beside the text."""
    return canonical_json(entry_value(entry))


def decode_entry(data: bytes, origin: str) -> PrefixVersion:
    """The entry in a registry's bytes.

    Raises:
        RegistryError: If they are no entry, or the entry's id does not fit it.
    """
    try:
        entry = Entry.model_validate_json(data).to_version()
    except ValidationError as exc:
        first = exc.errors()[0]["msg"]
        raise RegistryError(f"the entry of {origin} cannot be read: {first}") from exc
    if entry.id != entry.expected_id():
        raise RegistryError(f"the entry of {origin} was changed: its id does not fit it")
    return entry


def _record(target: TargetEntry) -> TargetRecord:
    return TargetRecord(
        key=PrefixKey(target.key),
        shared_tokens=target.shared_tokens,
        request_tokens=target.request_tokens,
        block_size=target.block_size,
        full_blocks=target.full_blocks,
        expected_hit_tokens=target.expected_hit_tokens,
        governed=target.governed,
        material=target.material,
        blocks=base64.b64decode(target.blocks),
    )


def _target_value(record: TargetRecord) -> dict[str, Any]:
    value = asdict(record)
    value["material"] = dict(record.material)
    value["blocks"] = base64.b64encode(record.blocks).decode()
    return value
