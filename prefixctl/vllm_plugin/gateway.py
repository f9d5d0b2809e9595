"""The server's gateway: the middleware that ``serve`` puts in front of vLLM.

It is set up when it is imported, so that a server without a usable configuration, secret or
registry does not start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from prefixctl.config import Config
from prefixctl.gateway.record import Record
from prefixctl.vllm_plugin import guard

guard.check()

from prefixctl.vllm_plugin import gate  # noqa: E402 - after the guard; it has a check of its own
from prefixctl.vllm_plugin.gateway_call import GatewayApp  # noqa: E402
from prefixctl.vllm_plugin.gateway_series import Series  # noqa: E402
from prefixctl.vllm_plugin.gateway_site import open_site  # noqa: E402

log = logging.getLogger("vllm.prefixctl.gateway")


def _accounts(config: Config, model: str) -> Callable[[Record], None]:
    """Counts each request, and writes its line to the log."""
    series = Series(model, label_tenants=config.gateway.label_tenants)

    def account(record: Record) -> None:
        series.count(record)
        log.info(record.line())

    return account


SITE = open_site(os.environ, _accounts)


class Gateway(GatewayApp):
    """vLLM's middleware."""

    def __init__(self, app: Any) -> None:
        super().__init__(gate.Gate(app), SITE)
