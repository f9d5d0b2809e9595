"""The gateway in a real server: its routes, prefixes by key, clients, attacks, a live registry."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from typing import Any

import anthropic
import httpx
import openai
import pytest
from gated import TARGET, TOKEN, Gated, as_body, client_values, own_words, values_of
from gateway_mutations import mutate

from prefixctl.api.audit import audit_probe
from prefixctl.api.tenants import group_salt, require_secret, tenant_salt
from prefixctl.api.versions import (
    bump_prompts,
    publish_prompts,
    render_request,
    rollback_prompt,
)
from prefixctl.api.warm import warm_prefixes
from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import Prompt
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.errors import ExitCode
from prefixctl.gateway.live import CHECK_SECONDS
from prefixctl.gateway.routes import ROUTES
from prefixctl.prompts.render import example_values, render
from prefixctl.registry.publish import Wanted, load_live, load_published

pytestmark = pytest.mark.vllm
PROMPTS = ("coding-agent", "handbook-rag", "kefu-zh", "short-greeting", "support-agent")
RANDOM_VALUES_EACH = 40
NEAR_TIE = 1e-3
MUTATIONS = 200
# On purpose not served: kept responses know no tenant, and nobody changes weights through here.
REFUSED = {
    "/v1/responses/{response_id}", "/v1/responses/{response_id}/cancel",
    "/docs/oauth2-redirect", "/init_weight_transfer_engine", "/shutdown_weight_transfer_engine",
    "/start_weight_update", "/start_draft_weight_update", "/update_weights",
    "/finish_weight_update", "/update_weight_version", "/weight_info", "/weight_checker",
    "/get_world_size",
}  # fmt: skip


@pytest.fixture(scope="module")
def prompts(gated: Gated) -> dict[str, Prompt]:
    return {p.prompt.name: p.prompt for p in load_live(gated.config)}


def test_every_route_of_this_server_is_known(gated: Gated) -> None:
    listed = set(re.findall(r"Route: (\S+), Methods", gated.log.read_text(errors="replace")))
    assert "/v1/chat/completions" in listed
    unknown = {p for p in listed if not p.startswith("/prefixctl/")} - set(ROUTES) - REFUSED
    assert not unknown


@pytest.mark.parametrize("name", PROMPTS)
def test_a_key_gives_tokens_and_answer_of_the_full_text_for_any_values(
    name: str, gated: Gated, prompts: dict[str, Prompt]
) -> None:
    prompt, choose = prompts[name], random.Random(name)
    options = {"model": "m", "max_tokens": 3, "temperature": 0, "tool_choice": "none",
               "return_token_ids": True, "logprobs": True, "top_logprobs": 2}  # fmt: skip
    near_ties = 0
    for number in range(RANDOM_VALUES_EACH):
        values = values_of(prompt, choose)
        by_key = {"prefix_key": name, "prefix_parameters": client_values(prompt, values)}
        full, short = (
            gated.post("/v1/chat/completions", body | options).json()
            for body in (as_body(render(prompt, values)), by_key)
        )
        assert short["prompt_token_ids"] == full["prompt_token_ids"]
        near_ties += same_answer(full["choices"][0], short["choices"][0])
        if number < 5:
            own = gated.tokens(prefix_key=f"{name}@1", messages=own_words(prompt, values))
            assert own == full["prompt_token_ids"]
    assert near_ties <= RANDOM_VALUES_EACH // 20


def same_answer(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Checks that two greedy answers agree up to a near tie; whether there was one."""
    if one["token_ids"] == other["token_ids"]:
        return False
    at = next(i for i, (x, y) in enumerate(zip(one["token_ids"], other["token_ids"], strict=True))
              if x != y)  # fmt: skip
    first, second = (top["logprob"] for top in one["logprobs"]["content"][at]["top_logprobs"])
    assert abs(first - second) <= NEAR_TIE, f"token {at} differs"
    return True


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", PROMPTS)
def test_a_key_gives_the_answer_of_the_full_text(
    name: str, stream: bool, gated: Gated, prompts: dict[str, Prompt]
) -> None:
    prompt = prompts[name]
    values = example_values(prompt, 1, {"index_name": "bulletins-north"})
    options = {"max_tokens": 8, "return_token_ids": True, "stream": stream, "temperature": 0,
               "tool_choice": "none", "model": "m"}  # fmt: skip
    outputs = []
    for body in (
        as_body(render(prompt, values)),
        {"prefix_key": name, "prefix_parameters": client_values(prompt, values)},
        {"prefix_key": name, "messages": own_words(prompt, values)},
    ):
        answer = gated.post("/v1/chat/completions", body | options)
        assert answer.status_code == 200, answer.text
        outputs.append(token_ids(answer, stream=stream))
    assert len(outputs[0]) == 8
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]


def token_ids(answer: httpx.Response, *, stream: bool) -> list[int]:
    if not stream:
        found: list[int] = answer.json()["choices"][0]["token_ids"]
        return found
    assert '"usage"' not in answer.text
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    return [t for line in lines for t in json.loads(line)["choices"][0].get("token_ids") or ()]


@pytest.mark.parametrize("name", PROMPTS)
def test_all_chat_apis_make_the_same_prompt(
    name: str, gated: Gated, prompts: dict[str, Prompt]
) -> None:
    prompt = prompts[name]
    values = example_values(prompt, 2, {"index_name": "bulletins-north"})
    given = {"prefix_key": name, "prefix_parameters": client_values(prompt, values)}
    wanted = len(gated.tokens(**as_body(render(prompt, values))))
    base = {"model": "m", "temperature": 0, **given}
    chat = gated.post("/v1/chat/completions", base | {"max_tokens": 1, "tool_choice": "none"})
    assert chat.json()["usage"]["prompt_tokens"] == wanted
    answer = gated.post("/v1/responses", base | {"max_output_tokens": 1, "tool_choice": "none"})
    assert answer.json()["usage"]["input_tokens"] == wanted, answer.text
    none = {"tool_choice": {"type": "none"}}
    usage = gated.post("/v1/messages", base | {"max_tokens": 1} | none).json()["usage"]
    found = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert found + usage["cache_creation_input_tokens"] == wanted
    counted = gated.post("/v1/messages/count_tokens", {"model": "m", **given})
    assert counted.json()["input_tokens"] == wanted


def test_a_group_shares_the_prefix_and_nobody_sees_a_tail(gated: Gated) -> None:
    secret = "My order number is 7719 and I live in the blue house by the old mill. " * 12
    body = {"prefix_key": "support-agent", "messages": [{"role": "user", "content": secret}]}
    record = load_published(gated.config, "support-agent").entry.targets[TARGET]
    gated.chat("acme", **body)
    of_prefix = gated.cached("bolt", **body)
    assert of_prefix == record.full_blocks * record.block_size
    own = gated.cached("acme", **body)
    assert own > of_prefix
    assert gated.cached("bolt", **body) == own
    # Another group has a copy of its own, and a tenant without the prompt nothing at all.
    assert gated.cached("dune", **body) == 0
    full = as_body(ChatRequest(messages=tuple(body["messages"])))
    assert gated.cached("core", **full) == 0


def test_attacks_get_no_foreign_hit(gated: Gated) -> None:
    words = "Nobody else has these words in front of their question, which is long enough. " * 20
    messages = [{"role": "user", "content": words}]
    body = {"model": "m", "max_tokens": 1, "messages": messages}
    gated.post("/v1/chat/completions", body | {"cache_salt": "common"}, "acme",
               **{"x-request-id": "first"})  # fmt: skip
    for attempt, headers in (
        ({"cache_salt": "common"}, {}),
        ({"vllm_xargs": {"prefixctl": "x", "kv_cache_report_mode": "full"}}, {}),
        ({"kv_transfer_params": {"do_remote_prefill": True}}, {}),
        ({"request_id": "first"}, {"x-request-id": "first", "x-data-parallel-rank": "0"}),
    ):
        fresh = f"{attempt} " + words
        own = {"messages": [{"role": "user", "content": fresh}]}
        gated.post("/v1/chat/completions", body | own | attempt, "acme")
        answer = gated.post("/v1/chat/completions", body | own | attempt, "dune", **headers)
        assert answer.status_code == 200
        details = answer.json()["usage"]["prompt_tokens_details"]
        assert not details["cached_tokens"]
    assert gated.post("/v1/chat/completions", body, "pfx-guessed").status_code == 401
    assert gated.post("/v1/chat/completions", body, "core",
                      **{"x-prefixctl-on-behalf": "tenant:acme"}).status_code == 403  # fmt: skip
    assert gated.post("/invocations", body, "core").status_code == 200
    assert gated.post("/inference/v1/generate", body, "core").status_code == 403
    page = httpx.get(gated.url + "/metrics", trust_env=False).text
    for name in ("cache_salt", "vllm_xargs", "kv_transfer_params", "request_id"):
        assert f'prefixctl_gateway_dropped_fields_total{{field="{name}"' in page
    for reason in ("unknown_api_key", "not_operator"):
        assert f'reason="{reason}"' in page


def test_an_operator_warms_for_a_group_without_the_secret(gated: Gated) -> None:
    behalf = {"x-prefixctl-on-behalf": "group:all"}
    body = {"model": "m", "max_tokens": 1, "tool_choice": "none", "prefix_key": "coding-agent",
            "messages": [{"role": "user", "content": "warm"}]}  # fmt: skip
    assert gated.post("/v1/chat/completions", body, TOKEN, **behalf).status_code == 200
    body["messages"] = [{"role": "user", "content": "a first question of mine"}]
    assert gated.cached("dune", **body) > 5_000


def test_warm_and_probe_need_no_secret(gated: Gated) -> None:
    tenancy = gated.config.tenancy.model_copy(update={"secret_file": None})
    config = gated.config.model_copy(update={"tenancy": tenancy})
    given: dict[str, Any] = {"servers": [gated.url], "environment": {ADMIN_TOKEN: TOKEN}}
    report = warm_prefixes(config, ["kefu-zh"], groups=["all"], **given)
    assert report.exit_code is ExitCode.OK
    measured = load_published(config, "kefu-zh").entry.targets[TARGET]
    words = [{"role": "user", "content": "another question"}]
    cached = gated.cached("dune", prefix_key="kefu-zh", messages=words)
    assert cached == measured.full_blocks * measured.block_size
    (probed,) = audit_probe(config, rounds=1, **given)
    assert probed.isolation == "isolated"


def test_mutated_requests_get_a_clear_answer(gated: Gated) -> None:
    choose = random.Random(3)
    paths = [
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
        "/v1/chat/completions/batch", "/invocations", "/tokenize", "/v1/systemone",
    ]  # fmt: skip
    headers = {"content-type": "application/json"}
    headers["authorization"] = f"Bearer {gated.keys['acme']}"
    statuses = Counter[int]()
    secret, model = require_secret(gated.config, {}), gated.config.target(TARGET).model
    salts = [tenant_salt(gated.config, secret, "acme", model),
             group_salt(gated.config, secret, "shop", model)]  # fmt: skip
    with httpx.Client(base_url=gated.url, headers=headers, timeout=120, trust_env=False) as client:
        for _ in range(MUTATIONS):
            answer = client.post(choose.choice(paths), content=mutate(choose))
            statuses[answer.status_code] += 1
            assert not any(salt in answer.text for salt in salts)
            if answer.status_code >= 400:
                assert answer.json()["error"]["message"]
    assert set(statuses) <= {200, 400, 403, 404, 409, 422}
    assert statuses[200] > MUTATIONS / 20
    assert gated.cached("acme", messages=[{"role": "user", "content": "still there"}]) == 0


def test_what_is_counted_and_what_is_told(gated: Gated) -> None:
    words = [{"role": "user", "content": "count me"}]
    gated.chat("acme", prefix_key="support-agent", messages=words)
    page = httpx.get(gated.url + "/metrics", trust_env=False).text
    found = re.findall(r"^prefixctl_requests_total\{(.*)\}", page, re.MULTILINE)
    assert any('prefix="support-agent"' in line and 'version="1"' in line for line in found)
    log = gated.log.read_text(errors="replace")
    lines = [line[line.index('{"path"') :] for line in log.splitlines() if '{"path"' in line]
    last = json.loads(lines[-1])
    assert (last["prefix"], last["status"]) == ("support-agent@1", 200)
    secrets = [*gated.keys.values(), TOKEN, "a-secret-for-tests-only", "count me", "blue house"]
    assert [s for s in secrets if s in "\n".join(lines) or s in page] == []


def test_publish_and_rollback_reach_the_server_within_seconds(gated: Gated) -> None:
    folder = gated.config.prompts_dir / "short-greeting"
    system = folder / "system.md"
    before = system.read_bytes()
    ask = {"messages": [{"role": "user", "content": "hello"}]}
    first = gated.tokens(prefix_key="short-greeting", **ask)
    try:
        system.write_text("Greet in verse, whatever is asked.")
        bump_prompts(gated.config, ["short-greeting"], reason="verse", author="test")
        publish_prompts(gated.config, [Wanted(name="short-greeting")], by="test")
        time.sleep(2 * CHECK_SECONDS)
        second = gated.tokens(prefix_key="short-greeting", **ask)
        assert second != first
        assert gated.tokens(prefix_key="short-greeting@1", **ask) == first
        rollback_prompt(gated.config, "short-greeting", by="test")
        time.sleep(2 * CHECK_SECONDS)
        assert gated.tokens(prefix_key="short-greeting", **ask) == first
    finally:
        system.write_bytes(before)


def test_the_stock_openai_client(gated: Gated) -> None:
    client = openai.OpenAI(base_url=f"{gated.url}/v1", api_key=gated.keys["acme"], max_retries=0)
    extra = {"prefix_key": "support-agent"}
    words = [{"role": "user", "content": "Where is it?"}]
    with client:
        assert [m.id for m in client.models.list()] == ["m"]
        answer = client.chat.completions.create(
            model="m", messages=words, max_tokens=4, extra_body=extra
        )
        assert answer.usage.prompt_tokens > 3_900
        chunks = list(
            client.chat.completions.create(
                model="m", messages=words, max_tokens=4, stream=True, extra_body=extra
            )
        )
        assert chunks[-1].choices[0].finish_reason is not None
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)
        tool = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
        answer = client.chat.completions.create(
            model="m", messages=words, tools=[tool], max_tokens=2, extra_body=extra
        )
        assert answer.choices
        response = client.responses.create(
            model="m", input="Where?", max_output_tokens=16, extra_body=extra
        )
        assert response.usage.input_tokens > 3_900
        text = client.completions.create(model="m", prompt="Once", max_tokens=2)
        assert text.choices
        with pytest.raises(openai.NotFoundError, match="no prefix 'nothing'"):
            client.chat.completions.create(
                model="m", messages=words, extra_body={"prefix_key": "nothing"}
            )
        with pytest.raises(openai.ConflictError, match="version 99"):
            client.chat.completions.create(
                model="m", messages=words, extra_body={"prefix_key": "support-agent@99"}
            )
    with (
        openai.OpenAI(base_url=f"{gated.url}/v1", api_key="wrong", max_retries=0) as wrong,
        pytest.raises(openai.AuthenticationError),
    ):
        wrong.models.list()


def test_the_stock_anthropic_client(gated: Gated) -> None:
    words = [{"role": "user", "content": "Where is it?"}]
    extra = {"prefix_key": "support-agent"}
    with anthropic.Anthropic(
        base_url=gated.url, api_key=gated.keys["acme"], max_retries=0
    ) as client:
        answer = client.messages.create(model="m", messages=words, max_tokens=4, extra_body=extra)
        assert answer.usage.cache_read_input_tokens > 3_900
        answer = client.messages.create(
            model="m", messages=words, max_tokens=4, system="Be brief.", extra_body=extra
        )
        assert answer.stop_reason == "max_tokens"
        tools = [{"name": "mine", "input_schema": {"type": "object"}}]
        with client.messages.stream(
            model="m", messages=words, max_tokens=4, tools=tools, extra_body=extra
        ) as stream:
            assert stream.get_final_message().stop_reason is not None
        with pytest.raises(anthropic.NotFoundError, match="no prefix 'nothing'"):
            client.messages.create(
                model="m", messages=words, max_tokens=1, extra_body={"prefix_key": "nothing"}
            )


def test_the_full_text_is_the_published_one(gated: Gated) -> None:
    values = {"question": "q", "customer": "c", "local_time": "t"}
    full = render_request(gated.config, "support-agent", "live", values=values, target=TARGET)
    assert gated.tokens(**as_body(full)) == gated.tokens(
        prefix_key="support-agent", prefix_parameters=values
    )
