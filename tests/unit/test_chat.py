"""Chat templates as vLLM 0.32 applies them; the right answers were read off its /tokenize."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefixctl.core.ports import ChatRequest
from prefixctl.errors import TokenizerError
from prefixctl.prompts.chat import ChatTemplate, server_tools
from prefixctl.prompts.tokenize import load_tokenizer

DUMP = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
PARTS = "{% for m in messages %}{% for p in m['content'] %}[{{ p.text }}]{% endfor %}{% endfor %}"


def render(source: str, *messages: dict, tools=None, **kwargs) -> str:
    template = ChatTemplate(source, special_tokens={}, kwargs=kwargs, path="t.jinja")
    return template.render(ChatRequest(messages=messages, tools=tools))


def test_a_tool_call_is_in_the_servers_order_with_arguments_as_an_object() -> None:
    call = {"type": "function", "id": "1", "function": {"name": "f", "arguments": '{"b": 1}'}}
    got = json.loads(render(DUMP, {"role": "assistant", "content": None, "tool_calls": [call]}))
    assert json.dumps(got["tool_calls"][0]) == (
        '{"id": "1", "function": {"arguments": {"b": 1}, "name": "f"}, "type": "function"}'
    )
    assert got["content"] == ""


@pytest.mark.parametrize("arguments", ["{bad", "[1]", "42", "", None])
def test_arguments_that_are_no_object_become_an_empty_one(arguments: str | None) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    got = json.loads(render(DUMP, {"role": "assistant", "tool_calls": [call]}))
    assert got["tool_calls"][0]["function"]["arguments"] == {}


def test_a_template_that_loops_over_content_gets_parts() -> None:
    assert render(PARTS, {"role": "user", "content": "a"}) == "[a]"
    assert render("{{ messages[0].content }}", {"role": "user", "content": "a"}) == "a"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(PARTS, {"role": "user", "content": parts}) == "[a][b]"
    assert render("{{ messages[0].content }}", {"role": "user", "content": parts}) == "a\nb"


def test_reasoning_reaches_the_template_under_both_names() -> None:
    message = {"role": "assistant", "content": "x", "reasoning": "why"}
    got = json.loads(render(DUMP, message))
    assert got["reasoning"] == got["reasoning_content"] == "why"


def test_tools_are_dumped_with_the_servers_fields() -> None:
    tools = ({"function": {"parameters": {}, "name": "f", "other": 1, "strict": True}},)
    assert server_tools(tools) == [
        {
            "type": "function",
            "function": {"name": "f", "description": None, "parameters": {}, "strict": True},
        }
    ]
    assert server_tools(None) is None


def test_the_environment_is_the_one_of_transformers() -> None:
    source = (
        "{% for m in messages %}\n{% if loop.index == 2 %}{% break %}{% endif %}\n"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        "{{ {'b': '<é>', 'a': 1} | tojson }}{{ date_string }}"
    )
    hello = {"role": "user", "content": "hello"}
    assert render(source, hello, hello, date_string="D") == 'hello{"b": "<é>", "a": 1}D'


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('no system') }}", "no system"),
        ("{{ messages.append(1) }}", "forbidden"),
        ("{{ ''.__class__.__mro__ }}", "forbidden"),
        ("{{ 1 / 0 }}", "division by zero"),
        pytest.param(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "not end",
            marks=pytest.mark.slow,
        ),
        ("{{ 'a' * 2000000000 }}", "too much"),
    ],
)
def test_a_template_that_refuses_is_an_error(source: str, words: str) -> None:
    with pytest.raises(TokenizerError, match=words):
        render(source, {"role": "user", "content": "x"})


def test_a_broken_template_names_its_line() -> None:
    with pytest.raises(TokenizerError) as caught:
        ChatTemplate("a\n{% if %}", special_tokens={}, kwargs={}, path="t.jinja")
    assert (caught.value.path, caught.value.line) == ("t.jinja", 2)


def test_media_cannot_be_rendered_offline() -> None:
    part = {"type": "image_url", "image_url": {"url": "x"}}
    with pytest.raises(TokenizerError, match="'image_url' cannot be rendered"):
        render(DUMP, {"role": "user", "content": [part]})


def test_the_template_may_stand_in_the_tokenizers_settings(
    tokenizer_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tokenizer_dir / "tokenizer.json").read_bytes())
    settings = tmp_path / "tokenizer_config.json"
    request = ChatRequest(messages=({"role": "user", "content": "hi"},))
    settings.write_text(json.dumps({"chat_template": "A{{ bos_token }}", "bos_token": "<s>"}))
    assert load_tokenizer(tmp_path).render(request) == "A<s>"
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    settings.write_text(json.dumps({"chat_template": named, "eos_token": {"content": "</s>"}}))
    assert load_tokenizer(tmp_path).render(request) == "D"
    with_tools = ChatRequest(messages=request.messages, tools=({"function": {"name": "f"}},))
    assert load_tokenizer(tmp_path).render(with_tools) == "T"
    (tmp_path / "own.jinja").write_text("O")
    assert load_tokenizer(tmp_path, chat_template=tmp_path / "own.jinja").render(request) == "O"
    settings.unlink()
    with pytest.raises(TokenizerError, match="no chat template"):
        load_tokenizer(tmp_path).render(request)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("tokenizer.json", None, "no such file"),
        ("tokenizer.json", "{}", "not a tokenizer"),
        ("tokenizer_config.json", "{", "broken JSON"),
        ("tokenizer_config.json", "[]", "not an object"),
    ],
)
def test_a_wrong_tokenizer_is_named(
    tokenizer_dir: Path, tmp_path: Path, file: str, text: str | None, words: str
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tokenizer_dir / "tokenizer.json").read_bytes())
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(text)
    with pytest.raises(TokenizerError, match=words) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.path == str(tmp_path / file)


def test_digests_follow_the_bytes(tokenizer_dir: Path, tmp_path: Path) -> None:
    first = load_tokenizer(tokenizer_dir)
    other = tmp_path / "t.jinja"
    other.write_bytes((tokenizer_dir / "chat_template.jinja").read_bytes() + b" ")
    second = load_tokenizer(tokenizer_dir, chat_template=other)
    assert first.digest == second.digest
    assert first.chat_template_digest != second.chat_template_digest
