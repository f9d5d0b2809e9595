"""Who may not use the admin routes is turned away before anything of a body is read."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("method", "length", "status"),
    [
        ("GET", None, 401),
        ("GET", "0" * 5_000 + "1", 413),  # more digits than Python reads as a number
        ("GET", "x", 411),
        ("POST", None, 411),
        ("POST", "1" * 19, 413),
        ("POST", str(2**26 + 1), 413),
        ("POST", "2", 401),
    ],
)
def test_a_length_that_cannot_be_right_is_refused(
    method: str, length: str | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vllm")
    from prefixctl.vllm_plugin import routes

    monkeypatch.setattr(routes, "attached", True)
    monkeypatch.setenv(routes.TOKEN_VARIABLE, "the-token")
    from prefixctl.vllm_plugin.gate import Gate

    headers = [] if length is None else [(b"content-length", length.encode())]
    scope: Any = {"type": "http", "method": method, "path": "/prefixctl/state", "headers": headers}
    refused = Gate(None)._refusal(scope)
    assert refused is not None
    assert refused[0] == status
