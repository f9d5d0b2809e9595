"""Secrets and personal data in prompts: what is found, what is passed over, what is never shown."""

from __future__ import annotations

import pytest
from linting import lint_text, static

from prefixctl.api.lint import lint_paths
from prefixctl.config import Config
from prefixctl.lint.private import find_personal_data, find_secrets, masked, names_a_secret
from prefixctl.lint.report import to_json
from prefixctl.lint.text import to_text

KEY = "sk-proj-4fKq81LmZx0Rt7VbNc2EwYpAh9JdGsUo3TiKeMn5Q"
SECRETS = [
    f"Use {KEY} for the search.",
    "AKIAQX7RTP2LMN4VZ6KC may list the bucket.",
    "The token is ghp_a8Kd03LmPq92ZxVbNc71EwYtRu56HsJgFo40.",
    "Authorization: Bearer a8Kd03LmPq92ZxVbNc71EwYtRu56",
    "Log in with password: Tr0ub4dor&3xKq first.",
    'api_key="q8Lm20Zx7Rt"',
    "密码：Kq82Lmzx0",
    "postgres://shop:h7Gt2Lq9Zx@db.internal/orders",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
]
NO_SECRETS = [
    "Tokens are sk-... strings; never print one.",
    "api_key = YOUR_API_KEY",
    "password: <password>",
    "password: {{ password }}",
    "token: example-token-123",
    "The token budget: 4096 tokens.",
    "Passwords are never asked for.",
    "https://user@host/path and http://localhost:8080/a@b",
    "secret: changeme123",
    "Use the access key combination: Ctrl+Alt+F4",
]
PERSONAL = [
    ("Charge 4539 5787 6362 1486 when asked.", "a card number"),
    ("Her social security number is 536-22-8417.", "a social security number"),
    ("Pay to DE02 1203 0000 0000 2020 51.", "an account number (IBAN)"),
    ("身份证号：44030619870415321X。", "an identity number"),
    ("Her mobile: +48 601 234 567.", "a private phone number"),
    ("tomas.brandt@brandt-logistics.com, his private address", "a private e-mail address"),
]
NOT_PERSONAL = [
    "Charge 4111 1111 1111 1111 in the test shop.",
    "Order 4539 5787 6362 1487 is late.",
    "A part number looks like 536-22-8417.",
    "An IBAN looks like DE89 3704 0044 0532 0130 00.",
    "An IBAN looks like DE02 1203 0000 0000 2020 52.",
    "编号 44030619870415321 不是身份证。",
    "Call our hotline: +48 601 234 567.",
    "Write to support@shop.example.",
    "Keep private data private; use the format 2025-01-31 10:20:30.",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_found_by_its_form(text):
    (found,) = find_secrets(text)
    assert text[found.start : found.end] not in masked(text)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_placeholders_and_plain_words_are_no_secrets(text):
    assert not list(find_secrets(text))
    assert masked(text) == text


@pytest.mark.parametrize(("text", "what"), PERSONAL)
def test_personal_data_is_found_by_form_and_check_digit(text, what):
    assert [p.what for p in find_personal_data(text)] == [what]


@pytest.mark.parametrize("text", NOT_PERSONAL)
def test_samples_and_other_numbers_are_nobody_s(text):
    assert not list(find_personal_data(text))


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("db_password", True),
        ("apiKey", True),
        ("ctx.secrets.search", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("密码", True),
        ("password_policy", False),
        ("api_key_instructions", False),
        ("token_limit", False),
        ("secretary", False),
        ("key_points", False),
    ],
)
def test_names_of_secrets(name, secret):
    assert names_a_secret(name) is secret


def test_the_line_of_a_secret_is_reported_and_the_secret_is_not_shown(tmp_path):
    (tmp_path / "p.j2").write_text(f"{static(30)}Use {KEY}, {{{{ user_id }}}}.\n{static(60)}")
    report = lint_paths(Config().at(tmp_path), [tmp_path / "p.j2"])
    secret = next(f for f in report.findings if f.rule == "PFX401")
    assert (secret.location.line, secret.location.column) == (4, 5)
    assert secret.variable == "sk-p***"
    for shown in (to_text(report), str(to_json(report))):
        assert KEY not in shown


def test_a_secret_variable_is_reported_wherever_it_is_printed(tmp_path):
    report = lint_text(tmp_path, static(60) + "Key: {{ api_key }}\n")
    assert [(f.rule, f.location.line) for f in report.findings] == [("PFX401", 7)]
    report = lint_text(tmp_path, "{% if api_key %}Search.{% endif %}\n" + static(60))
    assert not report.findings
