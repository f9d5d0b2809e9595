"""Where an engine answers what the admin routes ask: pins, residency, state, counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils

from prefixctl.core.governing import GovernedPart, governed_part
from prefixctl.core.pinbook import Wish
from prefixctl.core.tenancy import digest_of_salt, salt_pseudonym
from prefixctl.ids import BlockHash
from prefixctl.vllm_plugin.pool import GovernedBlockPool
from prefixctl.vllm_plugin.sharing import PublicPrefix, known_share

LEASE_SECONDS = 60.0
"""So long one API process may take to bring a prefix up before another one tries."""
Hasher = Callable[[Sequence[int], str | None], tuple[BlockHash, ...]]


def prefix_hasher(algorithm: str, block_tokens: int, *, masked: bool) -> Hasher:
    """The chain of hashes that this engine gives to a prompt without adapter and media.

    Args:
        algorithm: vLLM's name of it.
        block_tokens: Tokens of a block.
        masked: Salts enter as digests: see `sharing`.
    """
    function = get_hash_fn_by_name(algorithm)

    def hashes(token_ids: Sequence[int], salt: str | None) -> tuple[BlockHash, ...]:
        parent, chain = None, []
        for start in range(0, len(token_ids) - block_tokens + 1, block_tokens):
            key = digest_of_salt(salt) if salt and masked else salt
            extra = (("cache_salt", key),) if key and not start else None
            parent = kv_cache_utils.hash_block_tokens(
                function, parent, token_ids[start : start + block_tokens], extra
            )
            chain.append(BlockHash(parent))
        return tuple(chain)

    return hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A governed prefix as the routes name it.

    Attributes:
        name: Prompt, version and namespace, for people.
        token_ids: Its tokens, root first.
        section_ends: Where its sections end, in tokens.
        salt: The namespace's salt; None for requests without one.
        auto_hits: See `Wish`.
    """

    name: str
    token_ids: tuple[int, ...]
    section_ends: tuple[int, ...] = ()
    salt: str | None = None
    auto_hits: int | None = None

    def __repr__(self) -> str:
        return f"Prefix({self.name}, {len(self.token_ids)} tokens)"


class Below(Protocol):
    """What lies below the device; see `tiers.below`.

    Attributes:
        has_strangers: Whether there is a tier that is not ours.
    """

    has_strangers: bool

    def hold(self, wishes: tuple[Wish, ...]) -> None:
        """Keep what is pinned on the device there as well."""

    def purge(self, owners: Collection[str]) -> tuple[int, int]:
        """Remove what these owners have in host memory: how many blocks went, and are left."""

    def state(self) -> dict[str, Any]:
        """Blocks and pins of each tier."""


@dataclass(slots=True)
class _Known:
    prefix: Prefix
    wish: Wish
    part: GovernedPart
    leased_until: float = 0.0
    whole_at: int | None = None
    counted: tuple[int, int] = (0, 0)


class Desk:
    """Answers questions about one engine's governed pool; one call at a time.

    Attributes:
        governor: The pool's.
    """

    def __init__(
        self,
        pool: GovernedBlockPool,
        *,
        hasher: Hasher,
        why_no_pins: str = "",
        longest_request: int,
        most_tokens: int,
        below: Below | None = None,
        strangers_below: bool = False,
        running: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        """Set up.

        Args:
            pool: The pool.
            hasher: Hashes a prefix as this engine does.
            why_no_pins: Why this pool can have none; empty if it can.
            longest_request: Blocks that a request of the longest length needs.
            most_tokens: The longest prompt that can be computed.
            below: The tiers below the device, if there are any of ours.
            strangers_below: Whether there are others, into which nobody can look.
            running: The requests that are under way.
        """
        self.governor = pool.governor
        self._pool = pool
        self._hasher = hasher
        self._why_no_pins = why_no_pins
        self._longest_request = longest_request
        self._most_tokens = most_tokens
        self._below = below
        self._strangers_below = strangers_below
        self._running = running
        self._share_stamp = ""
        self._known: dict[str, _Known] = {}
        self._drained: Counter[tuple[str, ...]] = Counter()

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Do what ``ask`` says, with its arguments beside it."""
        asked: dict[str, Callable[..., dict[str, Any]]] = {
            "pin": self._pin,
            "unpin": self._unpin,
            "resident": self._resident,
            "share": self._share,
            "state": self._state,
            "drain": self._drain,
            "purge": self._purge,
        }
        arguments = dict(question)
        told = asked[arguments.pop("ask")](**arguments)
        if self._below is not None:
            self._below.hold(self._active())
        return told

    def _active(self) -> tuple[Wish, ...]:
        """The wishes whose blocks are to be pinned."""
        entries = (self._pool.pins.find(name) for name in self._known)
        return tuple(entry.wish for entry in entries if entry is not None and entry.active)

    def _purge(self, owners: Sequence[str]) -> dict[str, Any]:
        """Let go of what these owners have on the device and in host memory, pins included.

        Args:
            owners: Pseudonyms of salts (device), and whatever else the tiers call an owner.

        Returns:
            Blocks that went; and as ``left`` blocks in use and requests under way, which may store
            more. ``unknown`` if there are tiers below that are not ours.
        """
        meant = frozenset(owners)
        for name, known in list(self._known.items()):
            salt = known.prefix.salt
            if salt is not None and salt_pseudonym(salt) in meant:
                self._unpin(name)
        numbers = self.governor.owners.numbers(meant)
        device = self._pool.purge(numbers) if numbers else 0
        host, left = (0, 0) if self._below is None else self._below.purge(meant)
        left += sum(not meant.isdisjoint(_owners(request)) for request in self._running())
        return {"device": device, "host": host, "left": left, "unknown": self._strangers_below}

    def _pin(self, prefix: Mapping[str, Any]) -> dict[str, Any]:
        wanted = Prefix(**_tuples(prefix))
        part = self._part(wanted)
        keys = self._hasher(wanted.token_ids[: part.tokens], wanted.salt)
        wish = Wish(name=wanted.name, keys=keys, auto_hits=wanted.auto_hits)
        too_long = ""
        if part.tokens > self._most_tokens:
            too_long = f"it is longer than any prompt here: {self._most_tokens:,} tokens"
        if self._why_no_pins or too_long or not keys:
            reason = self._why_no_pins or too_long or part.reason or "it is shorter than one block"
            refused = bool(self._why_no_pins or too_long) or part.refused
            return {"name": wish.name, "blocks": 0, "accepted": not refused, "reason": reason}
        old = self._known.get(wish.name)
        answer = self._pool.pins.add(wish)
        accepted = answer.active or wish.auto_hits is not None
        if accepted:
            if old is not None:
                self._pool.unpin_unwanted(old.wish)
            self._known[wish.name] = _Known(wanted, wish, part)
            if answer.active:
                self._pool.pin_resident(wish)
        told = self._tell(wish, part) if accepted else {"name": wish.name, "blocks": len(keys)}
        return told | {"accepted": accepted, "reason": answer.reason or part.reason}

    def _unpin(self, name: str) -> dict[str, Any]:
        wish = self._pool.pins.remove(name)
        self._known.pop(name, None)
        if wish is None:
            return {"name": name, "unpinned": None}
        return {"name": name, "unpinned": self._pool.unpin_unwanted(wish)}

    def _resident(self, prefixes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        told = []
        for each in prefixes:
            prefix = Prefix(**_tuples(each))
            part = self._part(prefix)
            tokens = prefix.token_ids[: part.tokens or None]
            wish = Wish(name=prefix.name, keys=self._hasher(tokens, prefix.salt))
            told.append(self._tell(wish, part))
        return {"prefixes": told, "block_tokens": self.governor.shape.block_tokens}

    def _share(
        self, stamp: str, groups: Mapping[str, Mapping[str, list[int]]] | None = None
    ) -> dict[str, Any]:
        """Take the public prefixes of each group, by the group's salt and their names.

        Without groups it only says whether they are wanted: a process that comes second has
        nothing to tell.
        """
        library = self._pool.library
        if library is None or self._share_stamp == stamp:
            return {"wanted": False}
        if groups is None:
            return {"wanted": True}
        self._share_stamp = stamp
        for salt in {*library.groups(), *groups}:
            prefixes = groups.get(salt, {})
            library.replace(
                salt, [PublicPrefix(name=n, token_ids=ids) for n, ids in prefixes.items()]
            )
        return {"wanted": False}

    def _state(self, *, brief: bool = False) -> dict[str, Any]:
        for wish in self._pool.pins.cool(self.governor.now()):
            self._pool.unpin_unwanted(wish)
        owners = self.governor.owners
        shape = self.governor.shape
        return {
            "policy": self.governor.settings.policy,
            "settings": asdict(self.governor.settings),
            "blocks": self._partition(),
            "block_tokens": shape.block_tokens,
            "token_bytes": shape.token_bytes,
            "pin_cap": shape.pin_cap,
            "longest_request_blocks": self._longest_request,
            "why_no_pins": self._why_no_pins,
            "pins": [
                self._tell(known.wish, known.part, recount=not brief)
                for known in self._known.values()
            ],
            "owners": [
                {"owner": owners.pseudonym(number), "blocks": blocks}
                for number, blocks in owners.blocks.most_common(20)
                if blocks
            ],
            "counters": [[*name, n] for name, n in dict(self.governor.counters).items()],
            "below": None if self._below is None else self._below.state(),
        }

    def _drain(self) -> dict[str, Any]:
        """What happened since somebody last asked, and one prefix that is to be brought up.

        Each event is told once, so several API processes that ask in turn tell the truth together.
        """
        state = self._state(brief=True)
        # Requests are hashed, and counted, in a thread of their own.
        counters = dict(self.governor.counters)
        fresh = [[*n, v - self._drained[n]] for n, v in counters.items() if v > self._drained[n]]
        self._drained = Counter(counters)
        return state | {"fresh": fresh, "missing": self._claim()}

    def _claim(self) -> dict[str, Any] | None:
        now = self.governor.now()
        for known in self._known.values():
            wish = known.wish
            entry = self._pool.pins.find(wish.name)
            if entry is None or not entry.active:
                continue
            resident, pinned = self._count(wish)
            if pinned < resident:
                self._pool.pin_resident(wish)
            if resident == len(wish.keys):
                known.leased_until = 0.0
            elif known.leased_until <= now:
                known.leased_until = now + LEASE_SECONDS
                tokens = list(known.prefix.token_ids[: known.part.tokens])
                return {"name": wish.name, "token_ids": tokens, "salt": known.prefix.salt}
        return None

    def _part(self, prefix: Prefix) -> GovernedPart:
        shape = self.governor.shape
        return governed_part(
            len(prefix.token_ids),
            prefix.section_ends,
            block_tokens=shape.block_tokens,
            token_bytes=shape.token_bytes,
            settings=self.governor.settings,
        )

    def _tell(self, wish: Wish, part: GovernedPart, *, recount: bool = True) -> dict[str, Any]:
        pool, keys = self._pool, wish.keys
        entry = pool.pins.find(wish.name)
        last = None if entry is None else entry.last_hit
        known = self._known.get(wish.name)
        if recount or known is None or (entry is not None and entry.active):
            counted = self._count(wish)
            if known is not None and known.wish is wish:
                known.counted = counted
        else:
            counted = known.counted
        resident, pinned = counted
        return {
            "name": wish.name,
            "blocks": len(keys),
            "governed_tokens": part.tokens,
            "why_partial": part.reason,
            "resident": resident,
            "pinned": pinned,
            "active": entry is not None and entry.active,
            "auto_hits": None if entry is None else entry.wish.auto_hits,
            "hits": 0 if entry is None else entry.hits,
            "seconds_since_hit": None if last is None else self.governor.now() - last,
        }

    def _count(self, wish: Wish) -> tuple[int, int]:
        """Resident and pinned blocks; what was pinned whole stays so until a pin is lost."""
        pool, known = self._pool, self._known.get(wish.name)
        if known is not None and known.wish is wish and known.whole_at == pool.pins_lost:
            return len(wish.keys), len(wish.keys)
        pinned = sum(key in pool.pinned_block_of for key in wish.keys)
        if known is not None and known.wish is wish and pinned == len(wish.keys):
            known.whole_at = pool.pins_lost
        return pool.resident(wish.keys), pinned

    def _partition(self) -> dict[str, int]:
        """Every block of the pool, once."""
        pool, queue = self._pool, self._pool.free_block_queue
        total = self.governor.shape.blocks
        pinned = len(pool.pinned_block_of)
        in_flight = total - queue.num_free_blocks - pinned
        return {
            "total": total,
            "pinned": pinned,
            "pinned_idle": pool.pinned_idle,
            "in_flight": in_flight,
            "cached": queue.idle,
            "blank": queue.blank,
        }


def _owners(request: Any) -> set[str]:
    """Who a request stores blocks for: its tenant, and the group whose prefix it begins with."""
    salts = (request.cache_salt, known_share(request).group_salt)
    return {salt_pseudonym(salt) for salt in salts if salt}


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """JSON's lists as the tuples that they are."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()}
