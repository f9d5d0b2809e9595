"""Why the gateway turns a request away, in the words and the shape that clients expect."""

from __future__ import annotations

import json
from enum import StrEnum


class Reason(StrEnum):
    """The kinds of refusal, as they are counted."""

    NO_TENANT = "no_tenant"
    UNKNOWN_KEY = "unknown_api_key"
    FORGED_HEADER = "forged_header"
    NOT_OPERATOR = "not_operator"
    ON_BEHALF = "on_behalf"
    ROUTE = "route"
    METHOD = "method"
    BODY = "body"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    RATE = "rate"
    PREFIX_UNKNOWN = "prefix_unknown"
    PREFIX_VERSION = "prefix_version"
    PREFIX_FORBIDDEN = "prefix_forbidden"
    PREFIX_PARAMETERS = "prefix_parameters"
    UNAVAILABLE = "unavailable"


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class RefusedError(Exception):
    """A request that is not handed on.

    Attributes:
        status: The HTTP status.
        reason: The kind, for counting.
        message: What is wrong and what to do, for the client.
        param: The field of the body that it is about, if any.
        retry_after_seconds: When to try again, for a rate limit.
    """

    def __init__(
        self,
        status: int,
        reason: Reason,
        message: str,
        *,
        param: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.param = param
        self.retry_after_seconds = retry_after_seconds

    def body(self, *, anthropic: bool = False) -> bytes:
        """The answer's body: an error object as the OpenAI or the Anthropic API has it."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        error: dict[str, object] = {"type": kind, "message": self.message}
        if anthropic:
            return json.dumps({"type": "error", "error": error}).encode()
        error |= {"param": self.param, "code": self.reason.value}
        return json.dumps({"error": error}).encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The answer's headers, but for those that depend on the body."""
        found = [(b"content-type", b"application/json")]
        if self.retry_after_seconds is not None:
            found.append((b"retry-after", str(self.retry_after_seconds).encode()))
        if self.status == 401:  # noqa: PLR2004 - unauthorised
            found.append((b"www-authenticate", b"Bearer"))
        return found
