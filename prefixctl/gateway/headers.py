"""A request's headers on their way to the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prefixctl.gateway.identity import BEHALF_HEADER, Caller, Header

RANK = b"x-data-parallel-rank"
REQUEST_ID = b"x-request-id"
SESSION_ID = b"x-session-id"
AUTHORIZATION = b"authorization"
_REPLACED = {b"content-length", b"transfer-encoding", b"x-api-key", BEHALF_HEADER.encode()}
_MOST_ID_CHARS = 128


def forward(
    headers: Iterable[Header],
    *,
    caller: Caller,
    pseudonym: str,
    tenant_header: bytes,
    server_key: str,
    length: int | None,
) -> tuple[list[Header], Counter[str]]:
    """The headers to hand on, and what was dropped.

    Ids that a client chooses are made the tenant's own, so that no tenant can name another's
    request or session. A token that was read as a tenant's or an operator's gives way to the
    server's own key.

    Args:
        headers: As they came; names in lower case.
        caller: Who sent them.
        pseudonym: The tenant's.
        tenant_header: The header that proxies name the tenant in; empty if there is none.
        server_key: The server's own API key; empty if it has none.
        length: Of the new body; None to leave the length as it is.
    """
    kept: list[Header] = []
    dropped: Counter[str] = Counter()
    replaced = _REPLACED if length is not None else _REPLACED - {b"content-length"}
    for name, value in headers:
        if name in replaced or (tenant_header and name == tenant_header):
            continue
        if name == RANK and not caller.operator:
            dropped[RANK.decode()] += 1
        elif name == AUTHORIZATION and caller.by_token:
            continue
        elif name in {REQUEST_ID, SESSION_ID}:
            if name == REQUEST_ID:
                dropped[REQUEST_ID.decode()] += 1
            kept.append((name, own_id(value, pseudonym)))
        else:
            kept.append((name, value))
    if caller.by_token and server_key:
        kept.append((AUTHORIZATION, f"Bearer {server_key}".encode()))
    if length is not None:
        kept.append((b"content-length", str(length).encode()))
    return kept, dropped


def own_id(value: bytes, pseudonym: str) -> bytes:
    """An id under the tenant's pseudonym."""
    return pseudonym.encode() + b"-" + value[:_MOST_ID_CHARS]
