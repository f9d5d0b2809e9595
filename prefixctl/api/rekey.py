"""Carry the disk tier's blocks of a namespace over to the salts of the next epoch.

A salt changes the name of every block and none of its bytes, so a rotation needs no engine: each
block of a governed prefix is read, verified, and stored again under the name that it will have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from prefixctl.api.tenants import require_secret, salted_namespaces
from prefixctl.api.tiers import full_blocks, nvme_of
from prefixctl.api.warm import warm_item
from prefixctl.config import Config
from prefixctl.core.tenancy import Secret, key_owners, salt_pseudonym
from prefixctl.errors import ExitCode, NothingToDoError, UsageError
from prefixctl.ids import BlockHash
from prefixctl.prompts.target import load_target
from prefixctl.registry.publish import load_live
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.directory import TierFolder
from prefixctl.tiers.index import Rules
from prefixctl.tiers.keyring import KeyRing
from prefixctl.tiers.material import Material
from prefixctl.tiers.store import BlockStore
from prefixctl.tiers.write import Place

GROUP_BYTES = 4
"""The end of a key: the number of its cache group."""


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
    nvme, secret = nvme_of(config), require_secret(config, environment)
    folder = TierFolder(config.root / nvme.path)
    if not published or not folder.materials():
        raise NothingToDoError("no live version, or an empty tier", path=str(folder.path))
    epoch = config.tenancy.epoch + 1 if to_epoch is None else to_epoch
    later = _in_epoch(config, epoch)
    model = settings.model_version
    spaces = [salted_namespaces(c, model, tenants, groups, environment) for c in (config, later)]
    done = []
    with closing(_open(config, secret, folder)) as store:
        for item in (warm_item(config, loaded, p) for p in published):
            for pair in zip(*spaces, strict=True):
                salts = [space.salt_of(item.prompt.name) for space in pair]
                old, new = (
                    full_blocks(config, loaded, item.measurement, salt)[1] for salt in salts
                )
                was, will = (owner_tag(salt_pseudonym(salt)) for salt in salts if salt is not None)
                done.append(
                    Rekeyed(
                        prompt=item.prompt.name,
                        version=item.version,
                        namespace=pair[0].label,
                        blocks=len(old),
                        carried=_carry(store, old, new, {was: will}),
                    )
                )
    return RekeyReport(from_epoch=config.tenancy.epoch, to_epoch=epoch, prefixes=tuple(done))


def _open(config: Config, secret: Secret, folder: TierFolder) -> BlockStore:
    """The blocks of the newest model."""
    material = folder.materials()[-1]
    about = folder.about(material) or {}
    nvme = nvme_of(config)
    keys = None
    if nvme.key_file is not None:
        models = [target.model_version for target in config.targets.values()]
        keys = KeyRing(
            config.root / nvme.key_file,
            names_of=lambda name: key_owners(
                secret, name, models=models, epoch=config.tenancy.epoch
            ),
        )
    return BlockStore(
        folder.path,
        material=Material({}, known=bytes.fromhex(str(about["material"]))),
        block_bytes=int(about["block_bytes"]),
        max_bytes=int(nvme.gib * 2**30),
        rules=Rules(policy=nvme.policy, ttl_seconds=None),
        keyring=keys,
    )


def _carry(
    store: BlockStore,
    old: Sequence[BlockHash],
    new: Sequence[BlockHash],
    tags: Mapping[bytes, bytes],
) -> int:
    """Blocks of one prefix, root first; it ends at the first one that is not there."""
    groups = {key[-GROUP_BYTES:] for key in store.keys()}  # noqa: SIM118 - no mapping
    parent = b""
    for count, (was, will) in enumerate(zip(old, new, strict=True)):
        here = [group for group in groups if store.contains(was + group)]
        if not here or not all(_carry_block(store, was, will, parent, g, tags) for g in here):
            return count
        parent = will
    return len(old)


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
