"""The server's middleware: refuses to serve where the admin routes did not load.

vLLM logs a plugin that fails to import and serves on without it; a middleware that fails to
import stops the server. This one is imported after the plugins were attached.
"""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from prefixctl.vllm_plugin import guard

guard.check()

from prefixctl.vllm_plugin import routes  # noqa: E402 - after the guard
from prefixctl.vllm_plugin.parent import end_with_parent  # noqa: E402

if not routes.attached:
    raise guard.UngovernableError(
        "prefixctl's admin routes were not loaded, so the cache would be served ungoverned: "
        "VLLM_PLUGINS must name prefixctl, and the package must be installed where vLLM runs. "
        "Start the server with `prefixctl serve`, or with the command and the environment that "
        "`prefixctl serve --print` shows"
    )

end_with_parent()

MOST_ADMIN_BYTES = 64 * 2**20
_MOST_DIGITS = 18


class Gate:
    """Turns away who may not use the admin routes before a body is read; passes all else on."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI call."""
        path = scope.get("path", "")
        guarded = path.startswith(f"{routes.PREFIX}/") and path not in routes.OPEN_PATHS
        refused = self._refusal(scope) if scope["type"] == "http" and guarded else None
        if refused is None:
            await self._app(scope, receive, send)
            return
        status, words = refused
        await JSONResponse({"detail": words}, status)(scope, receive, send)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if not length.isdecimal() and (length or scope["method"] != "GET"):
            return 411, "say the length of the body"
        if len(length) > _MOST_DIGITS or int(length or "0") > MOST_ADMIN_BYTES:
            return 413, f"a body has at most {MOST_ADMIN_BYTES:,} bytes"
        return routes.refusal(headers.get("authorization", ""))
