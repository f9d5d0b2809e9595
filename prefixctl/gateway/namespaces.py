"""The salts of a namespace, and the ticket that tells the scheduler about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefixctl.core.tenancy import Namespace, NamespaceKind, Secret, derive_salt, pseudonym
from prefixctl.core.ticket import Ticket
from prefixctl.ids import Salt

MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What the gateway adds to a request.

    Attributes:
        salt: Its `cache_salt`.
        ticket: The signed ticket.
        pseudonym: The tenant's name for logs and labels.
    """

    salt: Salt = field(repr=False)
    ticket: str = field(repr=False)
    pseudonym: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Salts:
    own: Salt
    group: Salt
    pseudonym: str


class Namespaces:
    """Derives salts and signs tickets; what was derived is kept."""

    def __init__(self, secret: Secret, *, model: str, epoch: int) -> None:
        """Set up; the arguments are those of `derive_salt`."""
        self._secret, self._model, self._epoch = secret, model, epoch
        self._group_salts: dict[str, Salt] = {}
        self._salts: dict[tuple[Namespace, str | None], _Salts] = {}
        self._seals: dict[tuple[Namespace, str | None, str], Seal] = {}

    def seal(self, namespace: Namespace, group: str | None, prefix: str = "") -> Seal:
        """What a request of a namespace gets.

        A tenant without a group, and a group itself, have one salt for both purposes.

        Args:
            namespace: Whose request it is.
            group: The share group it belongs to.
            prefix: ``name@version`` of the prefix that was put in front.
        """
        key = (namespace, group, prefix)
        known = self._seals.get(key)
        if known is not None:
            return known
        salts = self._derive(namespace, group)
        ticket = Ticket(
            tenant=salts.pseudonym, salt=salts.own, group_salt=salts.group, prefix=prefix
        )
        made = Seal(salt=salts.own, ticket=ticket.sign(self._secret), pseudonym=salts.pseudonym)
        if len(self._seals) >= MOST_KEPT:
            self._seals.clear()
        self._seals[key] = made
        return made

    def pseudonym(self, namespace: Namespace, group: str | None) -> str:
        """The name of a namespace that reveals nothing."""
        return self._derive(namespace, group).pseudonym

    def _of_group(self, group: str) -> Salt:
        known = self._group_salts.get(group)
        if known is None:
            namespace = Namespace(kind=NamespaceKind.GROUP, name=group)
            known = derive_salt(self._secret, namespace, model=self._model, epoch=self._epoch)
            self._group_salts[group] = known
        return known

    def _derive(self, namespace: Namespace, group: str | None) -> _Salts:
        key = (namespace, group)
        known = self._salts.get(key)
        if known is not None:
            return known
        own = derive_salt(self._secret, namespace, model=self._model, epoch=self._epoch)
        shared = own if group is None else self._of_group(group)
        made = _Salts(own=own, group=shared, pseudonym=pseudonym(self._secret, namespace.full_name))
        if len(self._salts) >= MOST_KEPT:
            self._salts.clear()
        self._salts[key] = made
        return made
