"""A real server whose weights are loaded again: its disk tier is closed until a restart."""

from __future__ import annotations

import httpx
import pytest
from tiered import (
    BLOCK,
    ask_all,
    counted,
    request_of,
    tiered,
    tiers_of,
    wait_for_files,
    wait_until,
    whole,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's, at import
]


def test_a_server_whose_weights_are_loaded_again_leaves_the_disk_alone(model_folder, tmp_path):
    config = tiers_of(model_folder, tmp_path, environment={"VLLM_SERVER_DEV_MODE": "1"})
    requests = [request_of(seed, 200) for seed in range(2)]
    log = tmp_path / "server.log"
    with tiered(config, log) as (engine, server):

        def post(path: str, **more) -> None:
            httpx.post(f"{server.url}/{path}", timeout=60, **more).raise_for_status()

        def reset() -> None:
            post("reset_prefix_cache", params={"reset_external": "true"})

        cold = ask_all(engine, requests)
        stored = sum(c.use.prompt_tokens // BLOCK for c in cold)
        wait_for_files(tmp_path / "tier", stored)
        reset()
        ask_all(engine, [request_of(99, 40)])  # the first request after a reset may miss
        assert whole(ask_all(engine, requests))
        assert counted(engine, "closed") == 0
        post("collective_rpc", json={"method": "reload_weights"})
        reset()
        again = ask_all(engine, requests)
        assert [c.use.cached_tokens for c in again] == [0, 0]
        wait_until(lambda: counted(engine, "closed") == 1, "the page does not say it")
        assert counted(engine, "refused_blocks", 'reason="weights_replaced"') >= stored
    said = [line for line in log.read_text().splitlines() if "neither serves nor stores" in line]
    assert len(said) == 1 and "reload_weights was called on the workers" in said[0]
