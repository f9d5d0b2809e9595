"""What is simulated, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefixctl.traffic.choices import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """How far the pool is vLLM's.

    Attributes:
        recompute_last: The last prompt token is always computed, so a prompt that ends on a
            block computes that block again.
        tails: The partial block behind the full ones and the blocks of the answer take room.
        whole: A request that does not fit in the pool is not run; else its first blocks are
            cached and the rest is not.
    """

    recompute_last: bool
    tails: bool
    whole: bool


ENGINE = PoolRules(recompute_last=True, tails=True, whole=True)
"""vLLM's pool."""
PLAIN = PoolRules(recompute_last=False, tails=False, whole=False)
"""A cache of full prompt blocks and nothing else, as caching papers replay traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How long requests run; without it they run one at a time.

    Attributes:
        prefill_tokens_per_second: Of one replica.
        decode_tokens_per_second: Of one request.
        max_running: Requests that one replica runs at once.
    """

    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    max_running: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One simulation.

    Attributes:
        policy: A name of `core.policy.make.POLICIES`.
        capacity_blocks: The device pool of one replica.
        rules: How far the pool is vLLM's.
        host_blocks: The host tier of one replica, 0 for none.
        disk_blocks: Its disk tier.
        replicas: Servers, each with its own tiers.
        routing: Which one a request goes to.
        pins: Contents that are pinned once they are cached: whole prefixes.
        pin_blocks: Blocks of one replica that may be pinned at most; 0 only counts hits on pins.
        ttl_seconds: How long idle blocks live on the device, None for ever.
        tenant_shares: Idle blocks are shared out evenly between tenants.
        depth_cost: See `core.policy.make.depth_cost`.
        service: How long requests run.
    """

    policy: str
    capacity_blocks: int
    rules: PoolRules = ENGINE
    host_blocks: int = 0
    disk_blocks: int = 0
    replicas: int = 1
    routing: Routing = Routing.ROUND_ROBIN
    pins: frozenset[int] = field(default=frozenset(), repr=False)
    pin_blocks: int = 0
    ttl_seconds: float | None = None
    tenant_shares: bool = False
    depth_cost: float = 0.0
    service: Service | None = None


@dataclass(slots=True, kw_only=True)
class Counts:
    """What happened, in blocks and tokens; prompts only.

    Attributes:
        requests: All of them.
        rejected: Never run, because they do not fit in the pool.
        waited: Not run at once, for want of blocks or places.
        asked_blocks: Full blocks asked for.
        hit_blocks: Of them found on the device.
        pin_hit_blocks: Of these contents of `Setup.pins`, pinned or not.
        prompt_tokens: All prompt tokens.
        host_tokens: Found on the host, behind the device's hit.
        disk_tokens: Found on disk, behind both.
        evicted_blocks: Contents that made room on the device.
        expired_blocks: Contents that were too old when asked for.
        pinned_blocks: Pinned at the end, all replicas together.
        refused_pins: Contents that were to be pinned beyond the cap.
        peak_in_use_blocks: The most blocks of one replica that running requests held.
    """

    requests: int = 0
    rejected: int = 0
    waited: int = 0
    asked_blocks: int = 0
    hit_blocks: int = 0
    pin_hit_blocks: int = 0
    prompt_tokens: int = 0
    host_tokens: int = 0
    disk_tokens: int = 0
    evicted_blocks: int = 0
    expired_blocks: int = 0
    pinned_blocks: int = 0
    refused_pins: int = 0
    peak_in_use_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one simulation.

    Attributes:
        setup: What was simulated.
        counts: What happened.
        block_tokens: The block size.
        replica_hits: Hit blocks of each replica.
        replica_requests: Requests of each replica.
    """

    setup: Setup
    counts: Counts
    block_tokens: int
    replica_hits: tuple[int, ...] = ()
    replica_requests: tuple[int, ...] = ()

    @property
    def block_hit_rate(self) -> float:
        """Hit blocks of all full blocks asked for."""
        return self.counts.hit_blocks / max(self.counts.asked_blocks, 1)

    @property
    def hit_tokens(self) -> int:
        """Prompt tokens found on the device."""
        return self.counts.hit_blocks * self.block_tokens

    @property
    def token_hit_rate(self) -> float:
        """Prompt tokens found in any tier, of all prompt tokens."""
        found = self.hit_tokens + self.counts.host_tokens + self.counts.disk_tokens
        return found / max(self.counts.prompt_tokens, 1)
