"""Whose a request's blocks are, and which of them hangs on which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from prefixctl.core.tenancy import Secret, salt_pseudonym
from prefixctl.core.ticket import TICKET_ARGUMENT, read_ticket
from prefixctl.core.tiering import EXTRA_NAME
from prefixctl.tiers.block import GROUP_BYTES, MOST_LABEL_BYTES, NO_OWNER, owner_tag
from prefixctl.vllm_plugin.sharing import known_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who pays for a request's blocks, and the version that they belong to.

    Attributes:
        owner: Tag of the tenant.
        group: Tag of the group whose public prefix the request begins with.
        public_tokens: How long that prefix is.
        label: The version, as ``support-agent@3``; empty if it is not known.
    """

    owner: bytes = NO_OWNER
    group: bytes = NO_OWNER
    public_tokens: int = 0
    label: str = ""

    def owner_of(self, end_token: int | None) -> bytes:
        """Who pays for the block that ends at a token: the group inside its prefix."""
        public = end_token is not None and end_token <= self.public_tokens
        return self.group if public else self.owner


@dataclass(slots=True, kw_only=True)
class Chain:
    """What is known of a request's keys.

    Attributes:
        known: How many of them are in order.
        parents: Parent and depth of each.
        ends: The last key of each group, the depth behind it, and the token that it ends at.
        stored: Those that the request has stored itself.
        missed: Those that the disk does not have for this request: asked for once.
        counted: Those that host memory has answered for: counted once.
    """

    known: int = 0
    parents: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    ends: dict[bytes, tuple[bytes, int, int]] = field(default_factory=dict)
    stored: set[bytes] = field(default_factory=set)
    missed: set[bytes] = field(default_factory=set)
    counted: set[bytes] = field(default_factory=set)

    def extend(self, positions: dict[bytes, int]) -> None:
        """Bring keys in order that are new: nearly always each behind the last of its group."""
        fresh = list(islice(reversed(positions), len(positions) - self.known))
        for key in reversed(fresh):
            group, end = key[-GROUP_BYTES:], positions[key]
            parent, depth, before = self.ends.get(group, (b"", 0, -1))
            if end < before:
                self._sort(positions)
                break
            self.parents[key] = (parent, depth)
            self.ends[group] = (key, depth + 1, end)
        self.known = len(positions)

    def _sort(self, positions: dict[bytes, int]) -> None:
        self.ends.clear()
        for key in sorted(positions, key=positions.__getitem__):
            group = key[-GROUP_BYTES:]
            parent, depth, _ = self.ends.get(group, (b"", 0, -1))
            self.parents[key] = (parent, depth)
            self.ends[group] = (key, depth + 1, positions[key])


def name_origin(request: Any, secret: Secret | None) -> dict[str, Any]:
    """What the tiers are told of a request, in place of whatever the client has said.

    The tenant and the governed prefix come from a ticket that the gateway signed; without one the
    salt names the owner, by a digest, and without a salt nobody does. What lies ahead of the
    tenant's salt is the group's.
    """
    given = request.sampling_params.extra_args if request.sampling_params else None
    text = (given or {}).get(TICKET_ARGUMENT)
    salt = request.cache_salt
    ticket = None if secret is None else read_ticket(text, secret, salt=salt)
    params = {k: v for k, v in (request.kv_transfer_params or {}).items() if k != EXTRA_NAME}
    if ticket is not None:
        share = known_share(request)
        said: dict[str, Any] = {
            "owner": ticket.tenant,
            "label": ticket.prefix if share.prefix is None else share.prefix.name,
        }
        if share.group_salt is not None:
            group = salt_pseudonym(share.group_salt)
            said |= {"group": group, "public_tokens": share.boundary}
        return {**params, EXTRA_NAME: said}
    if salt:
        return {**params, EXTRA_NAME: {"owner": salt_pseudonym(salt)}}
    return params


def origin_of(req_context: Any) -> Origin:
    """What `name_origin` has said, from vLLM's context of the request."""
    params = req_context.kv_transfer_params
    said = params.get(EXTRA_NAME) if isinstance(params, Mapping) else None
    if not isinstance(said, Mapping):
        return Origin()
    return Origin(
        owner=owner_tag(said["owner"] or None),
        group=owner_tag(said.get("group")),
        public_tokens=said.get("public_tokens", 0),
        label=label_of(said.get("label", "")),
    )


def label_of(version: str) -> str:
    """The version as a header holds it; none at all if it is too long."""
    return version if len(version.encode()) <= MOST_LABEL_BYTES else ""


def chain_of(req_context: Any) -> Chain:
    """What is known of a request's keys; kept in vLLM's context of it."""
    chain: Chain | None = req_context.get_state(Chain)
    if chain is None:
        chain = Chain()
        req_context.set_state(chain)
    positions: dict[bytes, int] = req_context._offload_key_positions  # noqa: SLF001 - see seams
    if chain.known != len(positions):
        chain.extend(positions)
    return chain
