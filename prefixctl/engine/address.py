"""Addresses of servers, as people write them."""

from __future__ import annotations

import httpx

from prefixctl.errors import UsageError


def server_address(text: str) -> httpx.URL:
    """The base address of a server, for example ``http://127.0.0.1:8000``; a ``/v1`` is left out.

    Raises:
        UsageError: If it is none. It is not shown: it may hold a password.
    """
    try:
        base = httpx.URL(text.rstrip("/").removesuffix("/v1"))
    except (httpx.InvalidURL, ValueError) as exc:
        raise UsageError("no address of a server", hint="give http://HOST:PORT") from exc
    if base.scheme not in {"http", "https"} or not base.host:
        raise UsageError("no address of a server", hint="give http://HOST:PORT")
    return base
