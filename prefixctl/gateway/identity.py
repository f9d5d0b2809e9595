"""Who a request is from: an API key, a trusted proxy's word, an operator's token, or nobody."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prefixctl.config import ANONYMOUS, Config, GatewayConfig, valid_name
from prefixctl.core.tenancy import Namespace, NamespaceKind
from prefixctl.engine.launch import NO_FORWARDING
from prefixctl.errors import ConfigError
from prefixctl.gateway.groups import Groups
from prefixctl.gateway.refusal import Reason, RefusedError

BEHALF_HEADER = "x-prefixctl-on-behalf"
"""An operator names in it whom to act for: ``tenant:NAME`` or ``group:NAME``."""
Header = tuple[bytes, bytes]


class Keys(Protocol):
    """Where tenants' keys are looked up."""

    def tenant_of(self, key: str) -> str | None:
        """Whose key it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a request is from.

    Attributes:
        namespace: The tenant, or the group that an operator acts for; None for an operator who
            acts for nobody.
        group: The share group that the tenant belongs to; None if it is one of its own.
        operator: Whether the admin token came with it.
        by_token: Whether the ``Authorization`` header was read for it, and is not the server's.
    """

    namespace: Namespace | None
    group: str | None = None
    operator: bool = False
    by_token: bool = False


@dataclass(slots=True)
class _Credentials:
    bearer: str | None = None
    tenant: list[str] = field(default_factory=list)
    behalf: list[str] = field(default_factory=list)


class Identifier:
    """Tells who a request is from."""

    def __init__(
        self,
        gateway: GatewayConfig,
        groups: Groups,
        *,
        keys: Keys | None,
        admin_token: str,
    ) -> None:
        """Set up.

        Args:
            gateway: How tenants are known.
            groups: The share groups.
            keys: The tenants' API keys, if there are any.
            admin_token: The operators' token; empty if there are no operators.
        """
        self._groups = groups
        self._keys = keys
        self._admin = admin_token.strip().encode()  # as the admin routes read it
        self._header = (gateway.tenant_header or "").lower().encode()
        self._proxies = [ipaddress.ip_network(p, strict=False) for p in gateway.proxies]
        self._anonymous = gateway.missing_tenant == "anonymous"

    def identify(self, headers: Iterable[Header], address: str | None) -> Caller:
        """Who it is.

        Args:
            headers: Of the request; names in lower case.
            address: Of the peer that the server talks to.

        Raises:
            RefusedError: 401 for nobody or an unknown key, 403 for a claim that is not believed.
        """
        given = self._collect(headers)
        if self._is_operator(given.bearer):
            return self._operator(given)
        if given.behalf:
            raise RefusedError(403, Reason.NOT_OPERATOR, f"{BEHALF_HEADER} is for operators")
        if given.tenant:
            return self._named(given.tenant, address)
        if self._keys is not None and given.bearer is not None:
            tenant = self._keys.tenant_of(given.bearer)
            if tenant is None:
                raise RefusedError(401, Reason.UNKNOWN_KEY, "this API key is not known here")
            return self._tenant(tenant, by_token=True)
        if self._anonymous:
            return self._tenant(ANONYMOUS)
        raise RefusedError(
            401, Reason.NO_TENANT, "whose request is this? send an API key as a bearer token"
        )

    def is_operator(self, headers: Iterable[Header]) -> bool:
        """Whether the admin token came with a request."""
        return self._is_operator(self._collect(headers).bearer)

    def _collect(self, headers: Iterable[Header]) -> _Credentials:
        given = _Credentials()
        tenant_header = self._header
        api_key = None
        for name, value in headers:
            if name == b"authorization":
                scheme, _, token = value.decode("latin-1").partition(" ")
                given.bearer = token.strip() if scheme.lower() == "bearer" else None
            elif name == b"x-api-key":
                api_key = value.decode("latin-1").strip()
            elif tenant_header and name == tenant_header:
                given.tenant.append(value.decode("latin-1").strip())
            elif name == BEHALF_HEADER.encode():
                given.behalf.append(value.decode("latin-1").strip())
        if given.bearer is None:
            given.bearer = api_key
        return given

    def _is_operator(self, token: str | None) -> bool:
        if not self._admin or token is None:
            return False
        return hmac.compare_digest(token.encode(), self._admin)

    def _operator(self, given: _Credentials) -> Caller:
        if not given.behalf:
            return Caller(namespace=None, operator=True, by_token=True)
        kind, _, name = given.behalf[0].partition(":")
        if len(given.behalf) > 1 or kind not in {"tenant", "group"} or not _is_name(name):
            raise RefusedError(
                400, Reason.ON_BEHALF, f"{BEHALF_HEADER}: tenant:NAME or group:NAME, once"
            )
        if kind == "tenant":
            return self._tenant(name, operator=True, by_token=True)
        if name not in self._groups:
            raise RefusedError(404, Reason.ON_BEHALF, f"there is no share group '{name}'")
        return Caller(
            namespace=Namespace(kind=NamespaceKind.GROUP, name=name),
            group=name,
            operator=True,
            by_token=True,
        )

    def _named(self, names: list[str], address: str | None) -> Caller:
        """The tenant that a proxy names. From anybody else the header is a forgery."""
        if not self._trusts(address):
            raise RefusedError(
                403, Reason.FORGED_HEADER, "this header is for the proxies of this server"
            )
        if len(names) > 1 or not _is_name(names[0]) or names[0] == ANONYMOUS:
            raise RefusedError(401, Reason.NO_TENANT, "the proxy names no tenant")
        return self._tenant(names[0])

    def _tenant(self, name: str, *, operator: bool = False, by_token: bool = False) -> Caller:
        return Caller(
            namespace=Namespace(kind=NamespaceKind.TENANT, name=name),
            group=self._groups.of(name),
            operator=operator,
            by_token=by_token,
        )

    def _trusts(self, address: str | None) -> bool:
        try:
            peer = ipaddress.ip_address(address or "")
        except ValueError:
            return False
        mapped = getattr(peer, "ipv4_mapped", None) or peer
        return any(mapped in network for network in self._proxies)


def check_identity(config: Config, environment: Mapping[str, str]) -> None:
    """Refuse a gateway that can tell nobody, or that would believe anybody.

    Raises:
        ConfigError: With what to set.
    """
    gateway = config.gateway
    ways = (gateway.keys_file, gateway.tenant_header)
    if not any(ways) and gateway.missing_tenant == "refuse":
        raise ConfigError(
            "no way to know a tenant",
            path=config.path,
            hint="set gateway.keys_file, gateway.tenant_header, or missing_tenant: anonymous",
        )
    name, value = NO_FORWARDING
    if gateway.proxies and environment.get(name) != value:
        raise ConfigError(
            f"with a tenant header the server must see who really talks to it: ${name} must be "
            f"'{value}', or a peer could claim a proxy's address in X-Forwarded-For",
            hint="start the server with `prefixctl serve`",
        )


def is_this_host(address: str | None) -> bool:
    """Whether a peer is on this machine."""
    try:
        peer = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    return (getattr(peer, "ipv4_mapped", None) or peer).is_loopback


def _is_name(text: str) -> bool:
    try:
        return len(text) <= 128 and bool(valid_name(text))  # noqa: PLR2004 - longer is no name
    except ValueError:
        return False
