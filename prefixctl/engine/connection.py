"""A connection to one server: an address that messages may show, and a client that is closed."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx

from prefixctl.engine.address import server_address

CONNECT_SECONDS = 10.0


class Connection:
    """The base of all clients of a server; a ``with`` block closes it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        timeout_seconds: float,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect lazily.

        Args:
            url: Base address, for example ``http://127.0.0.1:8000``.
            token: Sent as a bearer token, if there is one.
            timeout_seconds: For a read.
            transport: For tests.

        Raises:
            UsageError: If the address is none.
            ValueError: If the token cannot be sent; it is not shown.
        """
        base = server_address(url)
        if token and not (token.isascii() and token.isprintable()):
            raise ValueError("not plain printable ASCII")
        # Messages name the server, but not a password or token that its address may hold.
        self._url = str(base.copy_with(username=None, password=None, query=None))
        self._client = httpx.Client(
            base_url=base,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS),
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base address, without secrets."""
        return self._url

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()
