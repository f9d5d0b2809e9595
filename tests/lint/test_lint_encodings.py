"""Files that are not UTF-8: read where that is certain, else a named error with the way out."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linting import lint_text

from prefixctl.core.encoding import UndecodableError, decode_text
from prefixctl.core.findings import Verdict
from prefixctl.lint.find import Found
from prefixctl.lint.fix import fix_file
from prefixctl.lint.run import Setup
from prefixctl.lint.tokens import EstimatedTokens

CHINESE = (
    "你是一名客服助手，请用简短的中文回答用户的问题。\r\n"
    "现在的时间：{{ strftime_now('%H:%M:%S') }}\r\n"
    + "退货须在三十天内提出，并附上收据；不要编造答案。\r\n"
    * 20
)
ENGLISH = "Answer briefly.\nIt is {{ strftime_now('%H:%M:%S') }}\n" + "Never invent it. " * 40
JAPANESE = "あなたは親切なアシスタントです。ユーザーの質問に短く答えてください。\n"
KOREAN = "당신은 친절한 도우미입니다. 사용자의 질문에 짧게 대답하세요.\n"
TAIWAN = "你是一名客服助手，請用簡短的中文回答用戶的問題。\n"

WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb2312", "gb18030", *WIDE])
def test_chinese_is_read_and_its_columns_count_characters(tmp_path, encoding):
    report = lint_text(tmp_path, CHINESE.encode(encoding))
    assert report.verdict is Verdict.BREAK
    clock = next(f for f in report.findings if f.rule == "PFX101")
    assert (clock.location.line, clock.location.column) == (2, 7)
    assert report.lines[clock.location].startswith("现在的时间：")


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("text", [ENGLISH, JAPANESE + ENGLISH, KOREAN + ENGLISH])
def test_wide_encodings_are_read_in_any_language(tmp_path, encoding, text):
    expected = lint_text(tmp_path / "plain", text)
    report = lint_text(tmp_path / "wide", text.encode(encoding))
    assert [f.location.line for f in report.findings] == [
        f.location.line for f in expected.findings
    ]
    assert report.prefix_tokens == expected.prefix_tokens


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (JAPANESE.encode("shift_jis"), "not UTF-8"),
        (JAPANESE.encode("euc_jp"), "not UTF-8"),
        (KOREAN.encode("euc_kr"), "not UTF-8"),
        (TAIWAN.encode("big5"), "not UTF-8"),
        ("Répondez à l'élève.".encode("latin-1"), "byte 1 is 0xE9"),
        ("Отвечайте кратко.".encode("cp1251"), "byte 0 is 0xCE"),
        ("你是助手".encode()[:-1], "byte 9 is 0xE6"),
        (CHINESE.encode("utf-16")[:-1], "broken UTF-16"),
        (CHINESE.encode("utf-32")[:-2], "broken UTF-32"),
    ],
)
def test_what_is_not_certain_is_named(tmp_path, data, words):
    report = lint_text(tmp_path, data)
    (finding,) = report.findings
    assert report.verdict is Verdict.ERROR
    assert finding.rule == "PFX000"
    assert words in finding.message
    assert "save the file as UTF-8" in finding.advice


def test_the_place_of_a_broken_byte_counts_characters(tmp_path):
    data = "第一行\r\n第二行".encode() + b"\xff" + "，请回答".encode()
    (finding,) = lint_text(tmp_path, data).findings
    assert (finding.location.line, finding.location.column) == (2, 4)
    assert "byte 20 is 0xFF" in finding.message


def test_one_broken_byte_does_not_make_utf8_chinese_gbk(tmp_path):
    text = CHINESE.encode()
    for seed in range(200):
        chance = random.Random(seed)
        data = bytearray(text)
        data[chance.randrange(len(data))] = chance.choice([0xFF, 0x80, 0xC0, 0x41])
        with suppress(UndecodableError):
            assert decode_text(bytes(data)).encoding == "utf-8"


def test_python_code_declares_its_encoding(tmp_path):
    code = f'# -*- coding: big5 -*-\nSYSTEM_PROMPT = f"""{TAIWAN * 9}{{now}}{TAIWAN * 9}"""\n'
    report = lint_text(tmp_path, code.encode("big5"), "prompts.py")
    assert report.verdict is not Verdict.ERROR
    assert report.total_tokens > 100


@pytest.mark.parametrize("encoding", ["gbk", "utf-16", "utf-16-be", "utf-32"])
def test_a_fix_keeps_the_encoding(tmp_path, encoding):
    path = tmp_path / "p.jinja"
    text = "\r\n" + CHINESE.replace("{{ strftime_now('%H:%M:%S') }}", "九点")
    path.write_bytes(text.encode(encoding))
    (fixed,) = fix_file(Found(path=path), Setup(counter=EstimatedTokens(), root=tmp_path))
    assert fixed.after.data == text[2:].encode(encoding)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=400))
def test_bytes_come_back_or_are_refused(data):
    try:
        found = decode_text(data)
    except UndecodableError as exc:
        assert 0 <= exc.offset <= len(data)
        assert exc.line >= 1
        assert exc.column >= 1
        return
    assert found.data == data


@settings(deadline=None)
@given(
    st.text(st.characters(codec="gb2312", categories=["L", "N", "P", "Z"]), max_size=200),
    st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "gb18030"]),
)
def test_no_text_is_read_as_another_one_by_its_mark(text, encoding):
    marked = ("\ufeff" + text).encode(encoding)
    assert decode_text(marked).text == text
