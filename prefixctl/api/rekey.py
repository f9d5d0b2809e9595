"""Carry the disk tier's blocks of a namespace over to the salts of the next epoch.

A salt changes the name of every block and none of its bytes, so a rotation needs no engine: each
block of a governed prefix is read, verified, and stored again under the name that it will have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from prefixctl.api.holdings import Holdings, full_blocks, holdings, nvme_of
from prefixctl.api.tenants import salted_namespaces
from prefixctl.api.warm import warm_item
from prefixctl.config import Config
from prefixctl.core.policy.tier import Rules
from prefixctl.core.tenancy import SaltedNamespace, salt_pseudonym
from prefixctl.errors import ExitCode, InputError, NothingToDoError, UsageError
from prefixctl.ids import BlockHash
from prefixctl.prompts.target import Target, load_target
from prefixctl.registry.publish import load_live
from prefixctl.tiers.block import GROUP_BYTES, owner_tag
from prefixctl.tiers.folder import ABOUT, TierFolder
from prefixctl.tiers.material import Material
from prefixctl.tiers.store import BlockStore
from prefixctl.tiers.write import Place
from prefixctl.warm.run import WarmItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Rekeyed:
    """One prefix in one namespace.

    Attributes:
        prompt: The prompt's name.
        version: Its version.
        namespace: The tenant or group.
        blocks: Its full blocks.
        carried: Blocks that are stored under the next epoch's name.
    """

    prompt: str
    version: int
    namespace: str
    blocks: int
    carried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyReport:
    """All prefixes, and the epochs."""

    from_epoch: int
    to_epoch: int
    prefixes: tuple[Rekeyed, ...]

    @property
    def exit_code(self) -> ExitCode:
        """1 if a prefix is not whole under the next epoch's names."""
        whole = all(p.carried == p.blocks for p in self.prefixes)
        return ExitCode.OK if whole else ExitCode.FINDINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """One prefix in one namespace: the names of its blocks in both epochs.

    Attributes:
        entry: What is told of it.
        old: The block hashes of the epoch that it was stored in.
        new: Those of the other one.
        tags: The owner's tag of the other epoch by that of this one.
    """

    entry: Rekeyed
    old: Sequence[BlockHash]
    new: Sequence[BlockHash]
    tags: Mapping[bytes, bytes]


def rekey(
    config: Config,
    names: Sequence[str] = (),
    *,
    target: str | None = None,
    tenants: Sequence[str] = (),
    groups: Sequence[str] = (),
    to_epoch: int | None = None,
    environment: Mapping[str, str],
) -> RekeyReport:
    """Store the blocks of live prefixes under the names that another epoch gives them.

    Args:
        config: The configuration, in the epoch that the blocks were stored in.
        names: Prompts; all live ones if empty.
        target: Its name; may be left out if there is one only.
        tenants: Tenants to carry over.
        groups: Share groups to carry over.
        to_epoch: The next epoch; one more than the configured one if omitted.
        environment: Where the tenancy secret may stand.

    Raises:
        UsageError: If no tenant and no group is named.
        NothingToDoError: If no version is live, or the tier holds no model.
    """
    if not tenants and not groups:
        raise UsageError("nobody to carry over", hint="name --group or --tenant")
    name, settings = config.only_target(target)
    loaded, published = load_target(config, name), load_live(config, names)
    held = holdings(config, name, environment)
    if not published or held is None:
        raise NothingToDoError(
            "no live version, or the disk tier holds nothing of this target",
            path=str(config.root / nvme_of(config).path),
            hint="prefixctl publish --all, prefixctl precompute",
        )
    epoch = config.tenancy.epoch + 1 if to_epoch is None else to_epoch
    if abs(epoch - config.tenancy.epoch) != 1:
        raise UsageError(
            f"from epoch {config.tenancy.epoch} to {epoch}: salts rotate by one epoch at a time",
            hint=f"give {config.tenancy.epoch + 1}, or the one before to go back",
        )
    later = _in_epoch(config, epoch)
    model = settings.model_version
    spaces = [salted_namespaces(c, model, tenants, groups, environment) for c in (config, later)]
    moves = [
        _move(config, loaded, warm_item(config, loaded, each), *pair)
        for each in published
        for pair in zip(*spaces, strict=True)
    ]
    with closing(_open(config, held)) as store:
        ends = {key[-GROUP_BYTES:] for key in store.keys()}  # noqa: SIM118 - no mapping
        # What is carried over, and what was, must not make room for one another.
        store.want([k + end for move in moves for k in (*move.old, *move.new) for end in ends])
        done = tuple(replace(move.entry, carried=_carry(store, move, ends)) for move in moves)
    return RekeyReport(from_epoch=config.tenancy.epoch, to_epoch=epoch, prefixes=done)


def _move(
    config: Config, target: Target, item: WarmItem, now: SaltedNamespace, later: SaltedNamespace
) -> _Move:
    salts = [space.salt_of(item.prompt.name) for space in (now, later)]
    old, new = (full_blocks(config, target, item.measurement, salt)[1] for salt in salts)
    was, will = (owner_tag(salt_pseudonym(salt)) for salt in salts if salt is not None)
    entry = Rekeyed(
        prompt=item.prompt.name,
        version=item.version,
        namespace=now.label,
        blocks=len(old),
        carried=0,
    )
    return _Move(entry=entry, old=old, new=new, tags={was: will})


def _open(config: Config, held: Holdings) -> BlockStore:
    """The blocks of a target's model."""
    folder, nvme = TierFolder(held.path), nvme_of(config)
    size = (folder.about(held.model) or {}).get("block_bytes")
    if not isinstance(size, int) or not folder.digest(held.model):
        raise InputError(
            "the folder does not say what its blocks are",
            path=str(held.path / held.model / ABOUT),
            hint="start a server once, which writes it anew",
        )
    return BlockStore(
        held.path,
        material=Material({}, known=folder.digest(held.model)),
        block_bytes=size,
        max_bytes=int(nvme.gib * 2**30),
        rules=Rules(
            policy=nvme.policy, ttl_seconds=None, shares=nvme.tenant_shares, pinned_share=1.0
        ),
        keyring=held.keyring,
    )


def _carry(store: BlockStore, move: _Move, ends: Collection[bytes]) -> int:
    """Blocks of one prefix, root first; it ends at the first one that is not there."""
    parent = b""
    for count, (was, will) in enumerate(zip(move.old, move.new, strict=True)):
        here = [end for end in ends if store.contains(was + end)]
        if not here or not all(_carry_block(store, was, will, parent, g, move.tags) for g in here):
            return count
        parent = will
    return len(move.old)


def _carry_block(  # noqa: PLR0917 - one call, all by name of a part
    store: BlockStore,
    old: bytes,
    new: bytes,
    parent: bytes,
    group: bytes,
    tags: Mapping[bytes, bytes],
) -> bool:
    """One block of one cache group."""
    body = memoryview(bytearray(store.block_bytes))
    if store.load(old + group, body) is not None:
        return False
    was = store.place_of(old + group)
    place = Place(
        key=new + group,
        parent=parent + group if parent else b"",
        depth=was.depth,
        owner=tags.get(was.owner, was.owner),
        label=was.label,
    )
    return store.put(place, body)


def _in_epoch(config: Config, epoch: int) -> Config:
    tenancy = config.tenancy.model_copy(update={"epoch": epoch})
    return config.model_copy(update={"tenancy": tenancy}).at(config.root)
