"""Prompts in the manner of what people publish, with the verdict that the definition demands.

Each verdict was written down before the linter saw the text.
"""

from __future__ import annotations

import json

import pytest
from linting import lint_text

from prefixctl.core.findings import Verdict

BREAK, WARN, OK = Verdict.BREAK, Verdict.WARN, Verdict.OK

RULES = """\
Think step by step before you act, and write your reasoning in a short paragraph.
Use a tool only when the answer is not in the text that you were given.
Never call the same tool twice with the same arguments, and stop after ten steps.
Write the final answer in Markdown, with a heading and at most five bullet points.
"""
SUPPORT = """\
Greet the customer, restate the problem in one sentence, then solve it or hand it over.
Refunds are possible within thirty days; damaged goods are replaced without a fee.
Do not promise delivery dates, discounts or legal outcomes, and never share internal notes.
"""
REVIEW = """\
Look for bugs first, then for missing tests, then for names that mislead the reader.
Quote the line that you mean, say why it is wrong, and propose a change as a diff.
Praise nothing, and do not comment on formatting: a tool takes care of that.
"""
ZH = """\
你是一名严谨的中文写作助手，负责润色用户提交的文章并保持原意不变。
请先指出语法错误和用词不当之处，再给出修改后的完整版本，并用列表说明理由。
不要添加原文没有的事实，不要改变人称，语气保持正式、客观、简洁。
"""
DE = """\
Du hilfst bei Fragen zu Mietverträgen und antwortest kurz, sachlich und in ganzen Sätzen.
Nenne immer den Paragrafen, auf den du dich stützt, und weise auf offene Fragen hin.
Gib keine Rechtsberatung im Einzelfall, sondern verweise auf einen Mieterverein.
"""


def indented(text: str, by: int = 2) -> str:
    return "".join(" " * by + line + "\n" for line in text.splitlines())


def messages(*rows: tuple[str, str]) -> str:
    return json.dumps({"model": "m", "messages": [{"role": r, "content": c} for r, c in rows]},
                      ensure_ascii=False, indent=1)  # fmt: skip


def f_prompt(body: str, head: str = "def build_prompt(question, context, user):\n") -> str:
    return f'{head}    return f"""{body}"""\n'


PROMPTS = {
    # agents
    "agent, task behind the rules": ("agent.j2", RULES + "Task: {{ task }}\n", OK),
    "agent, task ahead of the rules": ("agent.j2", "Task: {{ task }}\n" + RULES, BREAK),
    "agent, workspace folder": ("agent.j2", "You work in {{ cwd }}.\n" + RULES, BREAK),
    "agent, operating system": ("agent.j2", "OS: {{ operating_system }}\n" + RULES, WARN),
    "agent, tools in the client's order": (
        "agent.jinja2",
        "{% for tool in tools %}- {{ tool.name }}: {{ tool.description }}\n{% endfor %}" + RULES,
        WARN,
    ),
    "agent, tools sorted": (
        "agent.jinja2",
        "{% for tool in tools | sort(attribute='name') %}- {{ tool.name }}\n{% endfor %}" + RULES,
        OK,
    ),
    "agent, scratchpad at the end": (
        "react.txt",
        RULES + "Question: {input}\nThought: {agent_scratchpad}\n",
        OK,
    ),
    "agent, ReAct with the question first": (
        "react.txt",
        "Question: {input}\n" + RULES + "Thought: {agent_scratchpad}\n",
        BREAK,
    ),
    "agent, step limit": ("agent.j2", "You have {{ max_steps }} steps.\n" + RULES, OK),
    "agent, date in words": (
        "agent.j2",
        "Today is {{ today.strftime('%A, %d %B') }}.\n" + RULES,
        WARN,
    ),
    "agent, time to the second": ("agent.j2", "Now: {{ now.isoformat() }}\n" + RULES, BREAK),
    "agent, memory block": ("agent.md", "# Memory\n{{ memories }}\n\n# Rules\n" + RULES, BREAK),
    "agent, persona": ("agent.j2", "You are {{ agent_name }}.\n" + RULES, WARN),
    "agent, a run id": ("agent.md", "<!-- run {{ run_id }} -->\n" + RULES, BREAK),
    # RAG
    "rag, usual order": ("rag.txt", "{context}\n\nQuestion: {question}\nAnswer:\n", OK),
    "rag, rules first": ("rag.txt", RULES + "{context}\n\nQuestion: {question}\nAnswer:\n", OK),
    "rag, rules last": ("rag.txt", "{context}\n\nQuestion: {question}\n\n" + RULES, BREAK),
    "rag, loop over hits": (
        "rag.jinja",
        "{% for hit in hits.documents %}[{{ loop.index }}] {{ hit.text }}\n{% endfor %}" + RULES,
        BREAK,
    ),
    "rag, few-shot examples fixed": (
        "rag.jinja",
        "{% for e in few_shot_examples %}Q: {{ e.question }}\nA: {{ e.answer }}\n{% endfor %}"
        + RULES
        + "{{ question }}\n",
        OK,
    ),
    "rag, condition on whether there are documents": (
        "rag.jinja",
        "{% if documents %}Use the documents below.\n{% endif %}" + RULES + "{{ documents }}\n",
        OK,
    ),
    "rag, LangChain in code, rules first": (
        "prompts.py",
        f_prompt(RULES + "Context: {context}\nQuestion: {question}\n"),
        OK,
    ),
    "rag, LangChain in code, context first": (
        "prompts.py",
        f_prompt("Context: {context}\nQuestion: {question}\n" + RULES),
        BREAK,
    ),
    "rag, LlamaIndex template": (
        "prompts.py",
        'QA_PROMPT = PromptTemplate(\n    "Context: {context_str}\\n"\n'
        '    "Query: {query_str}\\n"\n    '
        + "\n    ".join(json.dumps(line + "\n") for line in RULES.splitlines())
        + "\n)\n",
        BREAK,
    ),
    "rag, LlamaIndex template in good order": (
        "prompts.py",
        "QA_PROMPT = PromptTemplate(\n    "
        + "\n    ".join(json.dumps(line + "\n") for line in RULES.splitlines())
        + '\n    "Context: {context_str}\\nQuery: {query_str}\\n"\n)\n',
        OK,
    ),
    # customer support
    "support, customer's name": ("support.j2", "Customer: {{ customer.name }}\n" + SUPPORT, BREAK),
    "support, customer's name last": (
        "support.j2",
        SUPPORT + "Customer: {{ customer.name }}\n",
        OK,
    ),
    "support, company": ("support.j2", "You work for {{ company_name }}.\n" + SUPPORT, WARN),
    "support, greeting where the name is known": (
        "support.j2",
        "{% if user_name %}Say hello to {{ user_name }}.\n{% endif %}" + SUPPORT,
        WARN,
    ),
    "support, plan of a tenant": (
        "support.j2",
        "{% if tenant.plan == 'pro' %}Offer a call.{% else %}Offer e-mail.{% endif %}\n" + SUPPORT,
        WARN,
    ),
    "support, ticket as YAML": (
        "support.yaml",
        "system_prompt: |\n" + indented("Ticket {{ ticket_id }}: {{ ticket.body }}\n" + SUPPORT),
        BREAK,
    ),
    "support, support address in the text": (
        "support.md",
        SUPPORT + "Write to help@shop.example.\nTone: {{ tone }}\n",
        OK,
    ),
    "support, session": ("support.j2", "Session {{ sessionId }}\n" + SUPPORT, BREAK),
    "support, time of day decides": (
        "support.j2",
        "{% if now().hour < 12 %}Good morning!{% else %}Hello!{% endif %}\n" + SUPPORT,
        WARN,
    ),
    # code review
    "review, diff behind": ("review.md", REVIEW + "```diff\n{{ diff }}\n```\n", OK),
    "review, diff ahead": ("review.md", "```diff\n{{ diff }}\n```\n" + REVIEW, BREAK),
    "review, repository": ("review.j2", "Repository: {{ repo.full_name }}\n" + REVIEW, BREAK),
    "review, language of the code": ("review.j2", "Language: {{ language }}\n" + REVIEW, OK),
    "review, in code, author ahead": (
        "review_prompt.py",
        f_prompt("Author: {user.login}\n" + REVIEW, "def review_prompt(user):\n"),
        BREAK,
    ),
    "review, a clock that is read at import": (
        "prompts.py",
        'TODAY = datetime.now().strftime("%Y-%m-%d")\nSYSTEM_PROMPT = f"""Date: {TODAY}\n'
        + REVIEW
        + '"""\n',
        WARN,
    ),
    # roleplay
    "roleplay, character card": ("card.hbs", "{{char}} is a pirate.\n" + RULES, OK),
    "roleplay, user in the card": ("card.hbs", "{{char}} talks to {{user}}.\n" + RULES, BREAK),
    "roleplay, history last": (
        "card.hbs",
        RULES + "{{#each history}}{{role}}: {{content}}\n{{/each}}",
        OK,
    ),
    "roleplay, a random mood": ("card.j2", "Mood: {{ ['glad', 'sad'] | random }}\n" + RULES, BREAK),
    "handlebars, tools in the client's order": (
        "agent.hbs",
        "{{#each tools}}- {{name}}\n{{/each}}" + RULES,
        WARN,
    ),
    "handlebars, fixed steps": ("agent.hbs", "{{#each steps}}- {{name}}\n{{/each}}" + RULES, OK),
    # Chinese and multilingual
    "中文，问题在后": ("polish.txt", ZH + "文章：{text}\n", OK),
    "中文，问题在前": ("polish.txt", "用户问题：{用户问题}\n" + ZH, BREAK),
    "中文，当前时间": ("polish.j2", "当前时间：{{ 当前时间 }}\n" + ZH, BREAK),
    "中文，当前日期": ("polish.j2", "今天是 {{ current_date }}。\n" + ZH, WARN),
    "中文，注释里的时间": ("polish.j2", "{# 当前时间 {{ now }} #}" + ZH, OK),
    "deutsch, Frage am Ende": ("miete.j2", DE + "Frage: {{ frage }}\n", OK),
    "deutsch, Mandant vorn": ("miete.j2", "Mandant: {{ tenant_id }}\n" + DE, WARN),
    "several languages": (
        "multi.j2",
        "Answer in {{ target_language }}.\n" + DE + ZH + "{{ question }}\n",
        OK,
    ),
    # other formats
    "prompty, customer in the system text": (
        "chat.prompty",
        "---\nname: Chat\nmodel:\n  api: chat\n---\nsystem:\n{{customer.firstName}} asks.\n"
        + SUPPORT
        + "\nuser:\n{{question}}\n",
        BREAK,
    ),
    "prompty, question in the user's turn": (
        "chat.prompty",
        "---\nname: Chat\nmodel:\n  api: chat\n---\nsystem:\n"
        + SUPPORT
        + "\nuser:\n{{question}}\n",
        OK,
    ),
    "dotprompt, question in the user's turn": (
        "ask.prompt",
        "---\nmodel: googleai/gemini\ninput:\n  schema:\n    q: string\n---\n"
        '{{role "system"}}\n' + SUPPORT + '{{role "user"}}\n{{query}}\n',
        OK,
    ),
    "dotprompt, user's name in the system text": (
        "ask.prompt",
        '---\nmodel: googleai/gemini\n---\n{{role "system"}}\nYou help {{userName}}.\n'
        + SUPPORT
        + '{{role "user"}}\n{{query}}\n',
        BREAK,
    ),
    "baml, document first": (
        "extract.baml",
        'function Extract(document: string) -> string {\n  client "a/b"\n  prompt #"\n'
        "    {{ document }}\n" + indented(REVIEW, 4) + '    {{ ctx.output_format }}\n  "#\n}\n',
        BREAK,
    ),
    "baml, document last": (
        "extract.baml",
        'function Extract(document: string) -> string {\n  client "a/b"\n  prompt #"\n'
        + indented(REVIEW, 4)
        + '    {{ ctx.output_format }}\n    {{ document }}\n  "#\n}\n',
        OK,
    ),
    "skprompt, input last": ("skprompt.txt", SUPPORT + "{{$input}}\n", OK),
    "skprompt, date ahead": (
        "skprompt.txt",
        "Today: {{time.Date}}\n" + SUPPORT + "{{$input}}\n",
        WARN,
    ),
    "skprompt, time ahead": (
        "skprompt.txt",
        "Now: {{time.Now}}\n" + SUPPORT + "{{$input}}\n",
        BREAK,
    ),
    "message list, question in its own turn": (
        "chat.json",
        messages(("system", SUPPORT), ("user", "{{ question }}")),
        OK,
    ),
    "message list, user in the system turn": (
        "chat.json",
        messages(("system", "For {{ user_id }}.\n" + SUPPORT), ("user", "Hi")),
        BREAK,
    ),
    "message list, tools and history": (
        "chat.json",
        messages(("system", SUPPORT), ("assistant", "Hello!"), ("user", "{{ input }}")),
        OK,
    ),
    "yaml with a jinja key": (
        "config.yml",
        "prompts:\n  system_jinja: |\n" + indented("{{ org_name }}\n" + SUPPORT, 4),
        WARN,
    ),
    "toml": ("agent.toml", 'system_prompt = """\nUser: {user_name}\n' + SUPPORT + '"""\n', BREAK),
    "format call in code": (
        "prompts.py",
        'SYSTEM_PROMPT = """{instructions}\n' + SUPPORT + 'Question: {question}\n"""\n',
        OK,
    ),
}


@pytest.mark.parametrize(("name", "text", "verdict"), PROMPTS.values(), ids=PROMPTS.keys())
def test_the_verdict_is_that_of_the_definition(tmp_path, name, text, verdict):
    report = lint_text(tmp_path, text, name)
    assert report.verdict is verdict, report.findings
