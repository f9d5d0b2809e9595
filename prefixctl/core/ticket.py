"""What the gateway tells the scheduler about a request, signed so that nobody else can say it."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass, field, fields

from prefixctl.core.tenancy import Secret
from prefixctl.ids import Salt

TICKET_ARGUMENT = "prefixctl"
"""Under this name a ticket travels in vLLM's `vllm_xargs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Who a request belongs to, in terms of the cache.

    Attributes:
        tenant: The tenant's pseudonym, for counters; empty for nobody's.
        salt: The tenant's salt: the `cache_salt` of the request that the ticket is good for;
            empty for a request without one.
        group_salt: The salt of the tenant's share group, under which public prefixes lie.
        prefix: ``name@version`` of the governed prefix that the gateway put in front; empty if
            it put none.
    """

    tenant: str
    salt: Salt = field(repr=False)
    group_salt: Salt = field(repr=False)
    prefix: str = ""

    def sign(self, secret: Secret) -> str:
        """The ticket as text: payload, a point, HMAC-SHA256; base64url without padding."""
        told = {name: getattr(self, name) for name in _FIELDS}
        payload = json.dumps(told, separators=(",", ":")).encode()
        return f"{_encode(payload)}.{_encode(_mac(secret, payload))}"


_FIELDS = tuple(f.name for f in fields(Ticket))


def read_ticket(text: object, secret: Secret, *, salt: str | None) -> Ticket | None:
    """The ticket of a request, None if it is not one that the gateway signed for it.

    Args:
        text: What came with the request.
        secret: The tenancy secret.
        salt: The salt that the request carries.
    """
    if not isinstance(text, str):
        return None
    encoded, _, mac = text.partition(".")
    try:
        payload, given = _decode(encoded), _decode(mac)
    except (ValueError, binascii.Error):
        return None
    if not hmac.compare_digest(given, _mac(secret, payload)):
        return None
    data = json.loads(payload)
    if not isinstance(data, dict) or set(data) != set(_FIELDS):
        return None
    ticket = Ticket(
        tenant=data["tenant"],
        salt=Salt(data["salt"]),
        group_salt=Salt(data["group_salt"]),
        prefix=data["prefix"],
    )
    same = hmac.compare_digest(ticket.salt.encode(), (salt or "").encode())
    return ticket if same else None


def _mac(secret: Secret, payload: bytes) -> bytes:
    return hmac.digest(secret.reveal(), b"prefixctl-ticket-1" + payload, "sha256")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
