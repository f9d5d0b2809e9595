"""Requests that name a registered prefix by its key."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import ADMIN, KEYS, Shop
from sample import TOOLS, WORDS

from prefixctl.api.versions import bump_prompts, publish_prompts, render_request, rollback_prompt
from prefixctl.config import load_config
from prefixctl.core.usage import CacheState
from prefixctl.gateway.live import CHECK_SECONDS
from prefixctl.registry.publish import Wanted
from prefixctl.registry.store import sqlite_file
from prefixctl.vllm_plugin.gateway_registry import RegistrySource

SYSTEM = {"role": "system", "content": WORDS * 3}
SHOTS = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "How can I help?"}]
ASK = {"role": "user", "content": "Where is it?"}
MANY = """\
sections:
  - {kind: system_prompt, file: system.md.j2}
  - {kind: document, file: document.md, role: user}
  - {kind: user, file: user.md.j2}
parameters:
  shop: {scope: deployment}
  tone: {scope: tenant, examples: [kind]}
  year: {scope: version, value: "2026"}
  question: {scope: request, examples: [What?, How?]}
"""
TOOLED = """\
sections:
  - {kind: few_shot, file: shots.json}
  - {kind: user, file: user.md.j2}
  - {kind: tools, file: tools.json}
parameters: {question: {scope: request, examples: [a]}}
"""
CHAT = "/v1/chat/completions"
CALLS = [
    {"role": "user", "content": "look"},
    {
        "role": "assistant",
        "content": "one moment",
        "tool_calls": [
            {
                "id": "c1", "type": "function",
                "function": {"name": "order_status", "arguments": '{"order": "ü"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "late"},
]  # fmt: skip


@pytest.fixture
def shop(project: Path) -> Shop:
    text = (project / "prefixctl.yaml").read_text()
    (project / "prefixctl.yaml").write_text(text + "    parameters: {shop: Alpine}\n")
    folder = project / "templates" / "many"
    folder.mkdir()
    (folder / "prompt.yaml").write_text(MANY)
    (folder / "system.md.j2").write_text("Be {{ tone }} at {{ shop }} in {{ year }}.")
    (folder / "document.md").write_text("The rules.")
    (folder / "user.md.j2").write_text("Q: {{ question }}")
    folder = project / "templates" / "tooled"
    folder.mkdir()
    (folder / "prompt.yaml").write_text(TOOLED)
    (folder / "shots.json").write_text(json.dumps(CALLS))
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    (folder / "user.md.j2").write_text("{{ question }}")
    return Shop(project)


def ask(shop: Shop, key: Any, path: str = "/v1/chat/completions", **body: Any) -> Any:
    return shop.post(path, {"prefix_key": key, **body})


def seen(shop: Shop) -> dict[str, Any]:
    body = dict(shop.server.body)
    for name in ("cache_salt", "vllm_xargs"):
        body.pop(name, None)
    return body


def error(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize("key", ["support", "support@1"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_request_gets_the_prefix_in_front(key: str, stream: bool, shop: Shop) -> None:
    assert ask(shop, key, messages=[ASK], stream=stream, model="m").status_code == 200
    body = seen(shop)
    assert body.pop("stream_options", {"include_usage": True}) == {"include_usage": True}
    assert body == {
        "messages": [SYSTEM, *SHOTS, ASK], "tools": TOOLS, "stream": stream, "model": "m"
    }  # fmt: skip
    record = shop.records[-1]
    assert record.prefix is not None
    assert record.prefix.label == "support@1"
    assert record.state is not None


def test_it_is_the_request_that_the_full_text_is(shop: Shop) -> None:
    full = render_request(shop.config, "support", "live", values={"question": "Where is it?"})
    ask(shop, "support", messages=[ASK])
    assert tuple(shop.server.body["messages"]) == full.messages
    ask(shop, "support", prefix_parameters={"question": "Where is it?"})
    assert tuple(shop.server.body["messages"]) == full.messages
    assert tuple(shop.server.body["tools"]) == full.tools


def test_a_section_of_one_role_is_continued_as_the_prompt_would(shop: Shop) -> None:
    values = {"tone": "kind", "question": "why?"}
    full = render_request(shop.config, "many", "live", values=values)
    own = [{"role": "user", "content": "Q: why?"}]
    assert ask(shop, "many", tenant_words=1, messages=own,
               prefix_parameters={"tone": "kind"}).status_code == 200  # fmt: skip
    assert tuple(shop.server.body["messages"]) == full.messages
    assert full.messages[0]["content"] == "Be kind at Alpine in 2026."
    assert full.messages[1]["content"] == "The rules.\n\nQ: why?"


def test_all_values_make_the_whole_prompt(shop: Shop) -> None:
    values = {"tone": "kind", "question": "why?"}
    full = render_request(shop.config, "many", "live", values=values)
    for _ in range(2):
        assert ask(shop, "many", prefix_parameters=values).status_code == 200
        assert tuple(shop.server.body["messages"]) == full.messages
    for wrong in ({"tone": "kind"}, values | {"more": "x"}, values | {"shop": "x"}, ["tone"]):
        answer = ask(shop, "many", prefix_parameters=wrong)
        assert error(answer) == (422, "prefix_parameters")


def test_a_prompt_with_sections_in_between_takes_all_values_or_none(shop: Shop) -> None:
    folder = shop.project / "templates" / "between"
    folder.mkdir()
    sections = "  - {kind: user, file: user.md.j2}\n  - {kind: document, file: document.md}\n"
    (folder / "prompt.yaml").write_text(
        f"sections:\n{sections}parameters: {{question: {{scope: request, examples: [a, b]}}}}\n"
    )
    (folder / "user.md.j2").write_text("{{ question }}")
    (folder / "document.md").write_text("The rules.")
    bump_prompts(shop.config, ["between"], reason="new", author="test")
    publish_prompts(shop.config, [Wanted(name="between")], by="test")
    assert error(ask(shop, "between", messages=[ASK])) == (422, "prefix_parameters")
    ask(shop, "between", prefix_parameters={"question": "why?"})
    assert shop.server.body["messages"] == [
        {"role": "user", "content": "why?"}, {"role": "system", "content": "The rules."}
    ]  # fmt: skip


def test_parts_of_a_message_are_not_joined(shop: Shop) -> None:
    own = [{"role": "user", "content": [{"type": "text", "text": "Q"}]}]
    ask(shop, "many", messages=own, prefix_parameters={"tone": "kind"})
    assert shop.server.body["messages"][1:] == [{"role": "user", "content": "The rules."}, *own]


def test_tools_of_the_client_stand_behind(shop: Shop) -> None:
    own = {"type": "function", "function": {"name": "mine"}}
    ask(shop, "support", messages=[ASK], tools=[own])
    assert shop.server.body["tools"] == [*TOOLS, own]
    assert error(ask(shop, "support", messages=[ASK], tools=TOOLS)) == (422, "prefix_parameters")


@pytest.mark.parametrize(
    ("path", "more", "parser", "choice"),
    [
        (CHAT, {"messages": [ASK]}, False, "none"),
        ("/v1/responses", {"input": "Where?"}, False, "none"),
        ("/v1/messages", {"messages": [ASK], "max_tokens": 1}, False, {"type": "none"}),
        (CHAT, {"messages": [ASK]}, True, None),
        (CHAT, {"messages": [ASK], "tool_choice": "auto"}, False, "auto"),
    ],
)
def test_without_a_tool_parser_tools_of_the_prefix_are_not_to_be_called(
    path: str, more: dict[str, Any], parser: bool, choice: Any, shop: Shop
) -> None:
    shop.tool_parser = parser
    ask(shop, "support", path, **more)
    assert shop.server.body.get("tool_choice") == choice


def test_a_completion(shop: Shop) -> None:
    ask(shop, "many", "/v1/completions", prompt="Go on", prefix_parameters={"tone": "kind"})
    text = "Be kind at Alpine in 2026.\n\nThe rules."
    assert seen(shop) == {"prompt": f"{text}\n\nGo on"}
    for key in ("support", "tooled"):
        answer = ask(shop, key, "/v1/completions", prompt="x")
        assert error(answer) == (422, "prefix_parameters")
    answer = ask(shop, "many", "/v1/completions", prompt=[1], prefix_parameters={"tone": "a"})
    assert error(answer) == (422, "prefix_parameters")


def test_a_response(shop: Shop) -> None:
    ask(shop, "support", "/v1/responses", input="Where?", instructions="Be brief.")
    tool = TOOLS[0]["function"]
    assert seen(shop) == {
        "input": [
            SYSTEM, *SHOTS, {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where?"},
        ],
        "tools": [{"type": "function", "strict": None, **tool}],
    }  # fmt: skip
    ask(shop, "tooled", "/v1/responses", input=[ASK])
    assert seen(shop)["input"] == [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "one moment"},
        {"type": "function_call", "call_id": "c1", "name": "order_status",
         "arguments": '{"order": "ü"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "late"},
        ASK,
    ]  # fmt: skip


def test_a_message_of_the_anthropic_api(shop: Shop) -> None:
    ask(shop, "support", "/v1/messages", messages=[ASK], system="Be brief.", max_tokens=1)
    tool = TOOLS[0]["function"]
    assert seen(shop) == {
        "system": SYSTEM["content"],
        "messages": [*SHOTS, {"role": "system", "content": "Be brief."}, ASK],
        "tools": [
            {"name": tool["name"], "description": tool["description"],
             "input_schema": tool["parameters"]}
        ],
        "max_tokens": 1,
    }  # fmt: skip
    ask(shop, "tooled", "/v1/messages", messages=[ASK])
    assert seen(shop)["messages"][1:3] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "one moment"},
                {"type": "tool_use", "id": "c1", "name": "order_status", "input": {"order": "ü"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "late"}],
        },
    ]


def test_tokens_can_be_asked_for_without_a_salt(shop: Shop) -> None:
    ask(shop, "support", "/tokenize", messages=[ASK])
    assert shop.server.body == {"messages": [SYSTEM, *SHOTS, ASK], "tools": TOOLS}


def test_an_operator_may_ask_for_the_tokens_of_any_prefix(shop: Shop) -> None:
    body = {"prefix_key": "support", "messages": [ASK]}
    assert shop.post("/tokenize", body, tenant=ADMIN).status_code == 200
    behalf = {"x-prefixctl-on-behalf": "tenant:core"}
    answer = shop.post(body=body, tenant=ADMIN, headers=behalf)
    assert error(answer) == (403, "prefix_forbidden")


@pytest.mark.parametrize(
    ("tenant", "body", "expected"),
    [
        ("acme", {"prefix_key": "suport"}, (404, "prefix_unknown")),
        ("acme", {"prefix_key": "support@2"}, (409, "prefix_version")),
        ("core", {"prefix_key": "support"}, (403, "prefix_forbidden")),
        ("core", {"prefix_key": "support@9"}, (403, "prefix_forbidden")),
        ("acme", {"prefix_key": "support@"}, (422, "prefix_parameters")),
        ("acme", {"prefix_key": "support@-1"}, (422, "prefix_parameters")),
        ("acme", {"prefix_key": "../support"}, (422, "prefix_parameters")),
        ("acme", {"prefix_key": 7}, (422, "prefix_parameters")),
        ("acme", {"prefix_parameters": {}}, (422, "prefix_parameters")),
        ("acme", {"prefix_key": "many"}, (422, "prefix_parameters")),
        ("acme", {"prefix_key": "many", "prefix_parameters": ["a"]}, (422, "prefix_parameters")),
        *(
            ("acme", {"prefix_key": "many", "prefix_parameters": values},
             (422, "prefix_parameters"))
            for values in (
                {"tone": 1}, {"tone": None}, {"tone": "a", "ton": "b"}, {"tone": "a", "year": "1"},
                {"tone": "a", "shop": "b"}, {"tone": "a", "question": "b"},
            )
        ),
        ("acme", {"prefix_key": "support", "messages": "x"}, (422, "prefix_parameters")),
        ("acme", {"prefix_key": "support", "tools": "x"}, (422, "prefix_parameters")),
    ],
)  # fmt: skip
def test_what_cannot_be_expanded_is_said(
    tenant: str, body: Any, expected: tuple[int, str], shop: Shop
) -> None:
    answer = shop.post(tenant=tenant, body={"messages": [ASK], **body})
    assert error(answer) == expected
    assert answer.json()["error"]["param"]
    assert shop.server.scopes == []


def test_a_near_name_is_offered_but_no_other_groups(shop: Shop) -> None:
    assert "many" in ask(shop, "mani", messages=[ASK]).json()["error"]["message"]
    assert "support" not in shop.post(
        tenant="core", body={"prefix_key": "suport", "messages": [ASK]}
    ).json()["error"]["message"].replace("suport", "")


def test_a_route_that_takes_none_says_so(shop: Shop) -> None:
    assert error(ask(shop, "support", "/v1/embeddings", input="x")) == (422, "prefix_parameters")


def test_a_prefix_that_is_too_short_has_that_state(shop: Shop) -> None:
    ask(shop, "many", messages=[ASK], prefix_parameters={"tone": "kind"})
    assert shop.records[-1].state is CacheState.TOO_SHORT


def test_a_template_does_not_see_a_value_as_a_template(shop: Shop) -> None:
    ask(shop, "many", messages=[ASK], prefix_parameters={"tone": "{{ 1 + 1 }}"})
    assert shop.server.body["messages"][0]["content"] == "Be {{ 1 + 1 }} at Alpine in 2026."


def release(project: Path, words: str) -> int:
    (project / "templates" / "support" / "system.md").write_text(words)
    config = load_config(project / "prefixctl.yaml")
    bump_prompts(config, ["support"], reason="words", author="test")
    return publish_prompts(config, [Wanted(name="support")], by="test")[0].live


def test_publish_and_rollback_reach_a_running_gateway(shop: Shop) -> None:
    ask(shop, "support", messages=[ASK])
    assert release(shop.project, "New words. " * 20) == 2
    time.sleep(CHECK_SECONDS * 1.1)
    ask(shop, "support", messages=[ASK])
    assert shop.server.body["messages"][0]["content"] == "New words. " * 20
    assert shop.records[-1].prefix is not None
    assert shop.records[-1].prefix.label == "support@2"
    ask(shop, "support@1", messages=[ASK])
    assert shop.server.body["messages"][0] == SYSTEM
    rollback_prompt(shop.config, "support", by="test")
    time.sleep(CHECK_SECONDS * 1.1)
    ask(shop, "support", messages=[ASK])
    assert shop.server.body["messages"][0] == SYSTEM


@pytest.mark.slow
def test_no_request_mixes_versions_while_they_change(shop: Shop) -> None:
    """100 publishes and rollbacks beside requests: text and ticket are always of one version."""
    words = {1: SYSTEM["content"], release(shop.project, "Second. " * 40): "Second. " * 40}
    done = threading.Event()

    def change() -> None:
        for number in range(50):
            publish_prompts(shop.config, [Wanted(name="support", version=1)], by="test")
            publish_prompts(shop.config, [Wanted(name="support", version=2)], by="test")
            if number % 2:
                rollback_prompt(shop.config, "support", by="test")
        done.set()

    worker = threading.Thread(target=change)
    worker.start()
    found = set()
    while not done.is_set():
        assert ask(shop, "support", messages=[ASK]).status_code == 200
        prefix = shop.records[-1].prefix
        assert prefix is not None
        assert shop.server.body["messages"][0]["content"] == words[prefix.version]
        found.add(prefix.version)
    worker.join()
    assert found == {1, 2}


def test_a_registry_that_is_gone_refuses_keys_and_nothing_else(shop: Shop) -> None:
    path = shop.config.registry_path
    path.rename(path.with_suffix(".away"))
    time.sleep(CHECK_SECONDS * 1.1)
    assert error(ask(shop, "support", messages=[ASK])) == (503, "unavailable")
    assert shop.post().status_code == 200
    path.with_suffix(".away").rename(path)
    time.sleep(CHECK_SECONDS * 1.1)
    assert ask(shop, "support", messages=[ASK]).status_code == 200


def test_a_name_of_megabytes_is_refused_at_once_and_not_repeated(shop: Shop) -> None:
    long = "a" * 8_000_000
    began = time.monotonic()
    for body in ({"prefix_key": long}, {"prefix_key": f"support@{long}"}):
        answer = shop.post(body=body | {"messages": [ASK]})
        assert error(answer) == (422, "prefix_parameters")
        assert len(answer.content) < 500
    answer = ask(shop, "support", messages=[ASK], prefix_parameters={long: "x"})
    assert error(answer) == (422, "prefix_parameters")
    assert len(answer.content) < 500
    assert time.monotonic() - began < 3


def test_where_there_are_many_prefixes_none_is_proposed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "known: many, tooled" in ask(shop, "suport", messages=[ASK]).text
    names = [f"support-{n}" for n in range(10_000)]
    monkeypatch.setattr(RegistrySource, "_usable", lambda *_: names)
    answer = ask(shop, "suport", messages=[ASK])
    assert error(answer) == (404, "prefix_unknown")
    assert "support-" not in answer.text


def test_requests_that_wait_for_a_locked_registry_wait_together(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 1.2)
    lock = sqlite3.connect(shop.config.registry_path, isolation_level=None)
    lock.execute("begin exclusive")

    async def all_of_them() -> list[int]:
        async with shop.client() as client:
            headers = {"x-api-key": KEYS["acme"]}
            bodies = [{"prefix_key": f"support@{n}", "messages": [ASK]} for n in range(1, 6)]
            sent = [client.post(CHAT, json=body, headers=headers) for body in bodies]
            return [answer.status_code for answer in await asyncio.gather(*sent)]

    began = time.monotonic()
    assert asyncio.run(all_of_them()) == [503] * 5
    assert time.monotonic() - began < 3 * 1.2
    lock.execute("rollback")
    lock.close()
    time.sleep(1)
    assert ask(shop, "support@1", messages=[ASK]).status_code == 200
