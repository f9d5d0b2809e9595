"""What one request adds to the series on the server's metrics page."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from prefixctl.core.usage import CacheUse
from prefixctl.gateway.record import Record
from prefixctl.gateway.refusal import Reason

prometheus_client = pytest.importorskip("prometheus_client", reason="comes with vLLM")


@pytest.fixture
def series() -> Any:
    from prefixctl.vllm_plugin.gateway_series import Series

    return Series("model-of-this-test", label_tenants=1)


def value(name: str, **labels: str) -> float | None:
    found: float | None = prometheus_client.REGISTRY.get_sample_value(
        name, {"model_name": "model-of-this-test", **labels}
    )
    return found


def test_a_request_is_counted_by_state_tenant_and_prefix(series: Any) -> None:
    own = {"tenant": "abc", "prefix": "", "version": ""}
    for cached, state in ((96, "full"), (16, "partial"), (0, "miss")):
        use = CacheUse(prompt_tokens=100, cached_tokens=cached)
        series.count(
            Record(path="/v1/x", tenant="abc", counts=True, status=200, use=use, block_tokens=16,
                   ttft_seconds=0.0015)
        )  # fmt: skip
        assert value("prefixctl_requests_total", state=state, **own) == 1
        name = "prefixctl_time_to_first_token_seconds_bucket"
        assert value(name, state=state, le="0.001") == 0
        assert value(name, state=state, le="0.002") == 1
    assert value("prefixctl_prompt_tokens_total", **own) == 300
    assert value("prefixctl_cached_tokens_total", **own) == 112
    series.count(Record(path="/v1/x", tenant="def", counts=True, status=200))
    others = own | {"tenant": "other"}
    assert value("prefixctl_requests_total", state="unreported", **others) == 1


def test_refusals_and_dropped_fields_are_counted(series: Any) -> None:
    dropped = Counter({"cache_salt": 1, "vllm_xargs": 2})
    series.count(Record(path="/v1/x", status=429, reason=Reason.RATE, counts=True, dropped=dropped))
    assert value("prefixctl_gateway_rejections_total", reason="rate") == 1
    assert value("prefixctl_gateway_dropped_fields_total", field="vllm_xargs") == 2


def test_a_failed_request_has_no_state(series: Any) -> None:
    before = value("prefixctl_gateway_seconds_count")
    series.count(Record(path="/v1/x", status=500, counts=True))
    series.count(Record(path="/tokenize", status=200))
    series.count(Record(path="/v1/x", counts=True))
    assert value("prefixctl_gateway_seconds_count") == before
