"""Request logs: styles, wrappers, broken lines, broken files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixctl.errors import InputError, NothingToDoError
from prefixctl.prompts.conversation import logged_conversation
from prefixctl.sources import requests
from prefixctl.sources.requests import LoggedRequest, RequestLog, Style, parse_line

CHAT = {"model": "m", "messages": [{"role": "user", "content": "你好"}], "temperature": 0.5}


def one(record: Any) -> LoggedRequest:
    return parse_line(json.dumps(record).encode(), 1)


def said(record: Any) -> list[tuple[str, str]]:
    return [(t.role, t.text) for t in logged_conversation(one(record)).turns]


class TestShapes:
    @pytest.mark.parametrize(
        "record",
        [
            CHAT,
            {"timestamp": 1, "request": CHAT, "status": 200},
            {"custom_id": "1", "method": "POST", "body": CHAT},
            {"request": json.dumps(CHAT), "tenant": "a"},
        ],
    )
    def test_a_body_is_found_and_nothing_is_lost(self, record: dict[str, Any]) -> None:
        found = one(record)
        assert found.style is Style.CHAT
        assert found.body == CHAT
        assert found.record == record
        assert found.model == "m"
        assert said(record) == [("user", "你好")]

    def test_anthropic_says_what_the_openai_style_says(self) -> None:
        tool = {"name": "t", "description": "d", "input_schema": {"type": "object"}}
        record = {
            "model": "m",
            "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}],
            "tools": [tool],
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t",
                                                   "input": {"x": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                                              "content": [{"type": "text", "text": "r"}]}]},
            ],
        }  # fmt: skip
        other = {
            "tools": [{"type": "function", "function": {"name": "t", "description": "d",
                                                        "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "a"}]},
                {"role": "assistant", "content": None,
                 "tool_calls": [{"id": "1", "type": "function",
                                 "function": {"name": "t", "arguments": '{"x":1}'}}]},
                {"role": "tool", "tool_call_id": "1", "content": "r"},
            ],
        }  # fmt: skip
        assert one(record).style is Style.ANTHROPIC
        assert logged_conversation(one(record)) == logged_conversation(one(other))

    def test_a_completion_and_a_reference(self) -> None:
        assert said({"prompt": "Once"}) == [("", "Once")]
        named = one({"prefix_key": "support@3"})
        assert (named.style, named.reference) == (Style.NAMED, "support@3")
        assert one({"request": CHAT, "prompt_name": "a", "prompt_version": 2}).reference == "a@2"

    @pytest.mark.parametrize(
        ("record", "prompt", "cached"),
        [
            (
                {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}},
                9,
                4,
            ),
            (
                {"response": {"usage": {"input_tokens": 2, "cache_read_input_tokens": 5}}},
                7,
                5,
            ),
            ({"response": {"body": {"usage": {"prompt_tokens": 3}}}}, 3, None),
            ({"usage": {"prompt_tokens": -1}}, None, None),
            ({"usage": {"prompt_tokens": True}}, None, None),
            ({}, None, None),
        ],
    )
    def test_usage(self, record: dict[str, Any], prompt: int | None, cached: int | None) -> None:
        found = one({"request": CHAT, **record})
        assert (found.prompt_tokens, found.cached_tokens) == (prompt, cached)

    def test_a_line_of_the_gateway(self) -> None:
        from prefixctl.gateway.record import Record

        record = json.loads(Record(path="/v1/x", tenant="t", status=200, complete=True).line())
        found = one({**record, "prefix": "support@3", "prompt_tokens": 7, "cached_tokens": 4})
        assert (found.style, found.reference) == (Style.GATEWAY, "support@3")
        assert (found.prompt_tokens, found.cached_tokens, found.was_refused) == (7, 4, False)
        assert one({**record, "status": 429}).was_refused

    @pytest.mark.parametrize(
        ("raw", "reason"),
        [
            (b"{", "not JSON"),
            (b"[" * 100_000, "not JSON"),
            (b"[1]", "not a JSON object"),
            (b"\xff\xfe{", "not UTF-8"),
            (b"{}", "no request"),
            (b'{"messages": 3}', "'messages' is no list"),
            (b'{"messages": [], "tools": 4}', "'tools' is no list"),
            (b'{"request": "GET /"}', "'request' is a string"),
        ],
    )
    def test_what_is_no_request_says_why(self, raw: bytes, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            parse_line(raw, 2)

    @given(st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(
            st.sampled_from(["messages", "role", "content", "tools", "system", "request", "type",
                             "function", "name", "usage", "prompt", "text", "prefix_key"]), inner),
        max_leaves=12,
    ))  # fmt: skip
    def test_any_json_is_a_request_or_says_why_not(self, record: Any) -> None:
        try:
            found = one(record)
            logged_conversation(found)
        except ValueError:
            return
        assert found.record == record
        assert found.prompt_tokens is None or found.prompt_tokens >= 0


class TestFile:
    def test_numbers_of_lines_and_what_was_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"\xef\xbb\xbf" + json.dumps(CHAT).encode() + b"\r\n\n{broken\n"
                         + json.dumps(CHAT).encode())  # fmt: skip
        log = RequestLog(path)
        assert [r.line for r in log] == [1, 4]
        assert [(m.line, m.reason) for m in log.malformed] == [(3, "not JSON")]
        assert log.requests == 2

    def test_gzip_by_its_content(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(gzip.compress(json.dumps(CHAT).encode()))
        assert len(list(RequestLog(path))) == 1
        path.write_bytes(gzip.compress(json.dumps(CHAT).encode() * 500)[:-9])
        with pytest.raises(InputError, match="broken gzip"):
            list(RequestLog(path))

    @pytest.mark.parametrize(
        ("data", "message"),
        [(b"", "the log is empty"), (b"\n \n", "the log is empty"), (b"x\ny\n", "none of 2 lines")],
    )
    def test_nothing_in_it_is_no_clean_pass(
        self, tmp_path: Path, data: bytes, message: str
    ) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(data)
        with pytest.raises(NothingToDoError, match=message) as caught:
            list(RequestLog(path))
        assert caught.value.exit_code == 3

    def test_what_is_no_file(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "none.jsonl"):
            with pytest.raises(InputError):
                list(RequestLog(path))

    def test_an_endless_line_is_never_held(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(requests, "MAX_LINE_BYTES", 1000)
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"x" * 5000 + b"\n" + json.dumps(CHAT).encode())
        log = RequestLog(path)
        assert [r.line for r in log] == [2]
        assert log.malformed[0].reason == "longer than 1,000 bytes"

    def test_a_flood_of_malformed_lines_is_counted(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"{\n" * 25_000 + json.dumps(CHAT).encode())
        log = RequestLog(path)
        assert [r.line for r in log] == [25_001]
        assert (log.malformed_count, len(log.malformed)) == (25_000, requests.KEPT_LINES)
