"""Selective sharing: the group's salt on a governed public prefix, the tenant's from there on.

vLLM puts a request's salt into the hash of block 0, so a salt for each tenant parts everything.
Here block 0 carries the salt of the tenant's share group, and the first block that is not wholly
inside the public prefix carries the tenant's. All other extra keys keep their place. The hasher of
requests and the event stream take their keys from one function, so both say the same.

Salts enter hashes as digests: the event stream carries the keys, and a raw salt on it would let
its readers into the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.core import block_pool, kv_cache_utils

from prefixctl.core.governing import Sharing
from prefixctl.core.tenancy import Secret, digest_of_salt
from prefixctl.core.ticket import TICKET_ARGUMENT, Ticket, read_ticket
from prefixctl.ids import Salt

_SHARE = "prefixctl_share"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPrefix:
    """Tokens that all tenants of a group may share.

    Attributes:
        name: ``prompt@version``.
        token_ids: The tokens of its full blocks. What stands behind them shares nothing, so a
            request need not have it: a client's own words may follow the prefix in another way
            than the prompt's dynamic sections do.
    """

    name: str
    token_ids: list[int] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How a request's blocks are salted.

    Attributes:
        ticket: Whose it is, None for a request that did not come through the gateway.
        prefix: The public prefix that it begins with, None if with none.
        boundary: Tokens in front of the tenant's salt, a multiple of the block size.
    """

    ticket: Ticket | None = None
    prefix: PublicPrefix | None = None
    boundary: int = 0

    @property
    def group_salt(self) -> Salt | None:
        """The salt of the group that the first blocks belong to; None if they are the tenant's."""
        return self.ticket.group_salt if self.ticket is not None and self.boundary else None


def known_share(request: Any) -> Share:
    """How a request was salted; nothing is shared if its first block was never hashed."""
    share: Share | None = getattr(request, _SHARE, None)
    return Share() if share is None else share


class Library:
    """The public prefixes of each share group, and how requests are salted with them.

    Requests are hashed in a thread of their own, so a group's prefixes are replaced as a whole.

    Attributes:
        mode: Whether prefixes are shared, only counted, or neither.
        counters: Where to count what was decided.
    """

    def __init__(
        self,
        mode: Sharing,
        secret: Secret,
        block_tokens: int,
        counters: Counter[tuple[str, ...]],
    ) -> None:
        self.mode = mode
        self.counters = counters
        self._secret = secret
        self._block_tokens = block_tokens
        self._groups: dict[str, tuple[PublicPrefix, ...]] = {}

    def replace(self, group_salt: str, prefixes: Sequence[PublicPrefix]) -> None:
        """From now on these are the public prefixes of a group."""
        full = [PublicPrefix(name=p.name, token_ids=self._full(p.token_ids)) for p in prefixes]
        longest_first = sorted(full, key=lambda p: -len(p.token_ids))
        self._groups[group_salt] = tuple(p for p in longest_first if p.token_ids)

    def _full(self, token_ids: list[int]) -> list[int]:
        return token_ids[: len(token_ids) // self._block_tokens * self._block_tokens]

    def groups(self) -> dict[str, tuple[PublicPrefix, ...]]:
        """All public prefixes by the salt of their group."""
        return dict(self._groups)

    def share_of(self, request: Any) -> Share:
        """How a request is salted; decided once, when its first block is hashed."""
        share: Share | None = getattr(request, _SHARE, None)
        if share is None:
            share = self._decide(request)
            setattr(request, _SHARE, share)
        return share

    def _decide(self, request: Any) -> Share:
        parameters = request.sampling_params
        arguments = (parameters.extra_args if parameters is not None else None) or {}
        claim = arguments.get(TICKET_ARGUMENT)
        if claim is None:
            return Share()
        ticket = read_ticket(claim, self._secret, salt=request.cache_salt)
        if ticket is None:
            self.counters["forged_tickets",] += 1
            return Share()
        prefix = self._prefix_of(request, ticket)
        if prefix is None:
            return Share(ticket=ticket)
        shared = self.mode is Sharing.ON
        self.counters["shared_requests", prefix.name, "shared" if shared else "shadow"] += 1
        return Share(ticket=ticket, prefix=prefix, boundary=len(prefix.token_ids) if shared else 0)

    def _prefix_of(self, request: Any, ticket: Ticket) -> PublicPrefix | None:
        tokens = request.prompt_token_ids
        if not tokens or request.prompt_embeds is not None:
            return None
        for prefix in self._groups.get(ticket.group_salt, ()):
            length = len(prefix.token_ids)
            if tokens[:length] == prefix.token_ids:
                inside = any(f.mm_position.offset < length for f in request.mm_features or ())
                return None if inside else prefix
        return None

    def extra_keys(
        self, stock: tuple[tuple[Any, ...] | None, int], request: Any, start: int
    ) -> tuple[tuple[Any, ...] | None, int]:
        """The extra keys of the block that begins at a token: vLLM's, but for the salt."""
        keys, media = stock
        share = self.share_of(request)
        if self.mode is not Sharing.ON:
            return stock
        kept = [key for key in keys or () if key[0] != "cache_salt"]
        salt = None
        if start == share.boundary:
            salt = request.cache_salt
        elif start == 0:
            salt = share.group_salt
        if salt:
            behind = [key for key in kept if key[0] == "prompt_embeds"]
            before = [key for key in kept if key[0] != "prompt_embeds"]
            kept = [*before, ("cache_salt", digest_of_salt(salt)), *behind]
        return (tuple(kept) or None), media


def install(library: Library) -> None:
    """Let requests and events take their keys from the library."""
    stock = kv_cache_utils.generate_block_hash_extra_keys
    stock = getattr(stock, "prefixctl_stock", stock)

    def governed(
        request: Any, start_token_idx: int, end_token_idx: int, start_mm_idx: int
    ) -> tuple[tuple[Any, ...] | None, int]:
        keys = stock(request, start_token_idx, end_token_idx, start_mm_idx)
        return library.extra_keys(keys, request, start_token_idx)

    governed.prefixctl_stock = stock  # type: ignore[attr-defined]
    kv_cache_utils.generate_block_hash_extra_keys = governed
    block_pool.generate_block_hash_extra_keys = governed
