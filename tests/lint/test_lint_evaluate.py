"""Data flow: what is printed, where, under which condition, and how often it changes."""

from __future__ import annotations

import pytest
from linting import CHAT_LOOP, lint_text, static

from prefixctl.core.findings import Severity, Verdict
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.formats import format_volatility
from prefixctl.lint.evaluate.names import cause_of
from prefixctl.lint.evaluate.value import CauseKind

TAIL = "\n" + static(100)
BREAK, WARN, OK = Verdict.BREAK, Verdict.WARN, Verdict.OK

FLOW = [
    ("{{ now() }}", BREAK, "PFX101"),
    ("{{ now().strftime('%Y-%m-%d') }}", WARN, "PFX101"),
    ("{{ now.strftime('%H:%M') }}", BREAK, "PFX101"),
    ("{{ datetime.now().isoformat()[:10] }}", WARN, "PFX101"),
    ("{{ datetime.date.today().isoformat() }}", WARN, "PFX101"),
    ("{{ now().hour }}", WARN, "PFX101"),
    ("{{ now | strftime('%d.%m.%Y') }}", WARN, "PFX101"),
    ("{{ current_time | date('yyyy-MM-dd') }}", WARN, "PFX101"),
    ("{% set t = strftime_now('%H:%M:%S') %}{{ 'It is ' + t }}", BREAK, "PFX101"),
    ("{% set ns = namespace(t='') %}{% set ns.t = now() %}{{ ns.t }}", BREAK, "PFX101"),
    ("{% set d %}Date: {{ today }}{% endset %}{{ d }}", WARN, "PFX101"),
    ("{% macro head(t) %}Time: {{ t }}{% endmacro %}{{ head(now()) }}", BREAK, "PFX101"),
    ("{% macro head() %}{{ now() }}{% endmacro %}", OK, None),
    ("{% set xs = [] %}{% set _ = xs.append(now()) %}{{ xs | join }}", BREAK, "PFX101"),
    ("{% for x in [now()] %}{{ x }}{% endfor %}", BREAK, "PFX101"),
    ("{{ '%s' % now() }}{{ 'a {}'.format(1) }}", BREAK, "PFX101"),
    ("{{ 'a {}'.format(user_id) }}", BREAK, "PFX103"),
    ("{{ user.name | default('friend') }}", BREAK, "PFX103"),
    ("{{ user_name or 'friend' }}", BREAK, "PFX103"),
    ("{% if user %}Hello {{ user.name }}.{% endif %}", WARN, "PFX103"),
    ("{% if a %}Hello {{ user.name }}{% else %}Hi {{ user.email }}{% endif %}", BREAK, "PFX103"),
    ("{{ 'Hello ' ~ user.name if user }}", WARN, "PFX103"),
    ("{% if debug %}{{ now() }}{% endif %}", BREAK, "PFX101"),
    ("{% if debug %}{{ today }}{% endif %}", WARN, "PFX101"),
    ("{% if false %}{{ now() }}{% endif %}", OK, None),
    ("{% if tenant == 'a' %}One.{% else %}Two.{% endif %}", WARN, "PFX104"),
    ("{% if now().hour < 12 %}Good morning{% else %}Hello{% endif %}", WARN, "PFX101"),
    ("{% if user is defined %}One.{% endif %}", OK, None),
    ("{% if mode == 'long' %}Be long.{% endif %}", OK, None),
    ("{{ uuid4() }}", BREAK, "PFX102"),
    ("{{ ['a', 'b'] | random }}", BREAK, "PFX102"),
    ("{{ request_id }}", BREAK, "PFX102"),
    ("{{ session_id }}", BREAK, "PFX105"),
    ("{{ tenant.name }}", WARN, "PFX104"),
    ("{{ question }}", BREAK, "PFX106"),
    ("{% for d in documents %}{{ d.title }}{% endfor %}", BREAK, "PFX106"),
    ("{% for e in examples %}{{ e.question }} {{ e.text }}{% endfor %}", OK, None),
    ("{{ region }}", WARN, "PFX107"),
    ("You are {{ name }}, {{ role }}.", WARN, "PFX107"),
    ("{{ name }}", OK, None),
    ("{{ facts | to_json }}", WARN, "PFX201"),
    ("{{ facts | tojson }}", OK, None),
    ("{{ tools | tojson }}", WARN, "PFX201"),
    ("{{ tools | map(attribute='name') | join(', ') }}", WARN, "PFX201"),
    ("{% for t in agent.toolList %}{{ t.name }}{% endfor %}", WARN, "PFX201"),
    ("{% for t in tools | sort(attribute='name') %}{{ t.name }}{% endfor %}", OK, None),
    ("{% for k in facts.keys() %}{{ k }}{% endfor %}", WARN, "PFX201"),
    ("{% for k, v in {'a': mood}.items() %}{{ k }}{{ v }}{% endfor %}", OK, None),
    ("{{ output_schema | tojson }}", OK, None),
    ("{{ tool_list | tojson(sort_keys=true) }}", WARN, "PFX201"),
    ("{{ tool_list | sort(attribute='name') | tojson }}", OK, None),
    ("{{ {'a': 1} | tojson }}", OK, None),
    ("{% for k, v in facts.items() %}{{ k }}{% endfor %}", WARN, "PFX201"),
    ("{% for k, v in facts | dictsort %}{{ k }}{% endfor %}", OK, None),
    ("{% raw %}{{ now() }}{% endraw %}", OK, None),
    ("{# {{ now() }} #}", OK, None),
    ("{{ raise_exception('no ' + user_id) }}", OK, None),
    ("{% filter upper %}{{ now() }}{% endfilter %}", BREAK, "PFX101"),
    ("{% with t = now() %}{{ t }}{% endwith %}", BREAK, "PFX101"),
    ("{% block head %}{{ now() }}{% endblock %}", BREAK, "PFX101"),
    ("{% chat role='system' %}{{ now() }}{% endchat %}", BREAK, "PFX101"),
    ("{{ lookup[strftime_now('%A')] }}", WARN, "PFX101"),
    ("{{ all_tags | join(', ') }}", WARN, "PFX201"),
    ("{{ all_tags | sort | join(', ') }}", OK, None),
    ("{{ tags | join(', ') }}", OK, None),
]


@pytest.mark.parametrize(("text", "verdict", "rule"), FLOW)
def test_flow(tmp_path, text, verdict, rule):
    report = lint_text(tmp_path, text + TAIL)
    assert report.verdict is verdict
    assert {f.rule for f in report.findings} == ({rule} if rule else set())


@pytest.mark.parametrize(("text", "verdict", "rule"), FLOW)
def test_the_same_at_the_tail_is_ok(tmp_path, text, verdict, rule):
    report = lint_text(tmp_path, static(100) + text + "\nAnswer:\n")
    assert report.verdict is OK
    assert not report.findings
    assert report.tokens_lost == 0


@pytest.mark.parametrize(
    ("behind", "verdict"),
    [
        ("{{ format_instructions }}", BREAK),
        ("{% for e in examples %}{{ e.input }}{{ e.output }}{% endfor %}", BREAK),
        ("{% if a %}{{ format_instructions }}{% endif %}", OK),
        ("{{ language }}", OK),
        ("{{ user_instructions }}", OK),
    ],
)
def test_a_variable_with_the_application_s_own_text_is_shareable(tmp_path, behind, verdict):
    assert lint_text(tmp_path, "{{ question }}\n" + behind).verdict is verdict


LEANING = [
    ("Based on the above conversation, {}", OK),
    ("Using only the passages above, {}", OK),
    ("根据以上内容回答用户的问题，回答要简短，不要编造任何数字或名称，也不要重复问题的内容。", OK),
    (
        "回答用户的问题，回答要简短，不要编造任何数字或名称，也不要重复问题的内容，请一定注意。",
        BREAK,
    ),
    ("Above all {}", BREAK),
    ("{}", BREAK),
]


@pytest.mark.parametrize(("line", "verdict"), LEANING)
def test_a_line_that_leans_on_the_value_goes_with_it(tmp_path, line, verdict):
    words = "answer in two or three short and plain sentences and never invent a number or a name"
    text = f"{static(30)}\n{{{{ question }}}}\n{line.format(words)}\n"
    assert lint_text(tmp_path, text).verdict is verdict


def test_a_printed_clock_is_reported_where_the_template_reads_it(tmp_path):
    text = "{% set t = strftime_now('%H:%M') %}\n\nTime: {{ t }}" + TAIL
    (finding,) = lint_text(tmp_path, text).findings
    assert (finding.location.line, finding.location.column) == (1, 12)
    assert "printed on line 3" in finding.message


def test_one_variable_is_one_finding(tmp_path):
    text = "{{ user.name }} {{ user.email }}\n{{ user.name }}" + TAIL
    (finding,) = lint_text(tmp_path, text).findings
    assert finding.location.line == 1
    assert "2 more" in finding.message


def test_a_guarded_value_and_a_plain_one(tmp_path):
    text = "{% if a %}{{ user.name }}{% endif %}\n{{ user.id }}" + TAIL
    (finding,) = lint_text(tmp_path, text).findings
    assert finding.severity is Severity.ERROR
    assert finding.location.line == 2


def test_tokens_lost_shrink_towards_the_end(tmp_path):
    text = "{{ user_id }}\n" + static(100) + "{{ session_id }}\n" + static(100)
    report = lint_text(tmp_path, text)
    first, second = (f.tokens_lost for f in report.findings)
    assert first > second > 80
    assert report.tokens_lost == first
    assert report.prefix_tokens == 0
    assert report.full_blocks == 0


def test_labels_of_the_next_value_are_no_shareable_text(tmp_path):
    text = static(50) + "{{ history }}\n</history>\n\nHere are the documents that were found:\n"
    text += "<documents>\n{% for d in documents %}{{ d }}{% endfor %}\n</documents>\n# Answer:\n"
    assert lint_text(tmp_path, text).verdict is OK


CHAT = [
    ("{{ strftime_now('%H:%M:%S') }}" + CHAT_LOOP, BREAK),
    ("{{ strftime_now('%Y-%m-%d') }}" + CHAT_LOOP, WARN),
    (CHAT_LOOP + "{{ strftime_now('%H:%M:%S') }}", OK),
    (CHAT_LOOP, OK),
    ("{{ tools | tojson }}" + CHAT_LOOP, WARN),
    ("{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}" + CHAT_LOOP, WARN),
    ("{{ messages[0]['content'] }}" + CHAT_LOOP, OK),
    (
        "{% if messages[0]['role'] == 'documents' %}{{ messages[0]['content'] }}{% endif %}"
        + CHAT_LOOP,
        WARN,
    ),
    (
        "{%- for message in messages %}{%- if loop.last %}{{ messages[0]['content'] }}{% endif %}"
        "{{ message.role }}{{ message.content }}{%- endfor %}",
        BREAK,
    ),
    (
        "{%- for message in messages %}{%- if loop.first %}{{ messages[0]['content'] }}{% endif %}"
        "{{ message.role }}{{ message.content }}{%- if not loop.last %}, {% endif %}{%- endfor %}",
        OK,
    ),
    (
        "{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}"
        "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{%- for m in messages %}"
        "{%- if loop.index0 > ns.last %}{{ m.reasoning_content }}{%- endif %}{{ m.content }}"
        "{%- endfor %}",
        WARN,
    ),
    (
        "{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}"
        "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{%- for m in messages %}"
        "{%- if loop.index0 > ns.last and m.get('tool_calls') %}{{ m.reasoning_content }}"
        "{%- endif %}{{ m.content }}{%- endfor %}",
        OK,
    ),
]


@pytest.mark.parametrize(("text", "verdict"), CHAT)
def test_chat_templates(tmp_path, text, verdict):
    report = lint_text(tmp_path, text)
    assert report.format == "chat-template"
    assert report.verdict is verdict


@pytest.mark.parametrize(
    ("pattern", "volatility"),
    [
        ("%Y-%m-%d", Volatility.DAY),
        ("%-d %B %Y", Volatility.DAY),
        ("%A", Volatility.DAY),
        ("%H:00", Volatility.HOUR),
        ("%I %p", Volatility.HOUR),
        ("%H:%M", Volatility.MINUTE),
        ("%Y-%m-%dT%H:%M:%S", Volatility.SECOND),
        ("%s", Volatility.SECOND),
        ("%c", Volatility.SECOND),
        ("100%%", Volatility.CONSTANT),
        ("yyyy-MM-dd HH:mm", Volatility.MINUTE),
        ("YYYY-MM-DD", Volatility.DAY),
        ("HH:mm:ss", Volatility.SECOND),
    ],
)
def test_formats(pattern, volatility):
    assert format_volatility(pattern) is volatility


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("currentDateTime", CauseKind.CLOCK),
        ("CURRENT_DATE", CauseKind.CLOCK),
        ("runtime_info.date", CauseKind.CLOCK),
        ("当前时间", CauseKind.CLOCK),
        ("traceId", CauseKind.RANDOM),
        ("sessionId", CauseKind.SESSION),
        ("workspace_dir_name", CauseKind.SESSION),
        ("first_name", CauseKind.USER),
        ("customer.orders", CauseKind.USER),
        ("userQuery", CauseKind.REQUEST),
        ("user_input", CauseKind.REQUEST),
        ("search_result.date", CauseKind.REQUEST),
        ("organization", CauseKind.TENANT),
        ("account_id", CauseKind.TENANT),
        ("hostname", CauseKind.DEPLOYMENT),
        ("time_zone", CauseKind.UNKNOWN),
        ("timeout", CauseKind.UNKNOWN),
        ("candidate_count", CauseKind.UNKNOWN),
        ("update", CauseKind.UNKNOWN),
        ("known", CauseKind.UNKNOWN),
        ("max_context_length", CauseKind.SETTLED),
        ("system_prompt", CauseKind.SETTLED),
        ("output_format", CauseKind.UNKNOWN),
        ("examples.question", CauseKind.SETTLED),
        ("knowledge_cutoff_date", CauseKind.SETTLED),
        ("support_email", CauseKind.SETTLED),
        ("product", CauseKind.UNKNOWN),
    ],
)
def test_names(name, kind):
    cause = cause_of(name)
    assert cause.kind is kind
    assert (cause.volatility is None) == (kind in {CauseKind.UNKNOWN, CauseKind.SETTLED})
