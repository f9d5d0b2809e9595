"""`prefixctl init`: what it finds, what it proposes, and that lint and bump accept it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from prefixctl.adopt.find import find_prompts as find_candidates
from prefixctl.adopt.texts import as_jinja
from prefixctl.api.init import guess_scope, propose_adoption, write_adoption
from prefixctl.api.lint import lint_paths
from prefixctl.api.versions import bump_prompts, check_prompts
from prefixctl.cli import init
from prefixctl.config import load_config
from prefixctl.core.prompt import Volatility
from prefixctl.errors import InputError, NothingToDoError, PrefixctlError
from prefixctl.prompts.load import find_prompts, load_prompt
from prefixctl.prompts.render import example_values, render

app = typer.Typer(pretty_exceptions_enable=False)
init.register(app)
PROSE = "You are a careful planner of long journeys. Answer in short sentences and never guess.\n"


@app.callback()
def options(context: typer.Context) -> None:
    """Stands for the options of the real program."""
    context.obj = None


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


AGENTS = {
    "src/agents/planner/prompt.jinja2": PROSE + "Plan for {{ question }}\n",
    "src/agents/planner/planner.py": "x = 1\n",
    "src/agents/coder/prompt.jinja2": PROSE + "{% if strict %}Be strict.{% endif %}\n",
    "README.md": "A prompt repository, with words enough to look like a prompt.\n",
}
SHARED = {
    "rag/prompts/answer.md": PROSE + "Give {{ topn }} answers to {{ query }}.\n",
    "rag/prompts/plain.md": PROSE,
    "rag/prompts/short.md": "Hi {x}",
    "rag/prompts/cite.txt": PROSE + 'Cite {passages} as {{"id": 1}} for {user_name}.\n',
    "docs/guide.md": PROSE,
}
CONFIGS = {
    "config/default.yaml": (
        "agent:\n  templates:\n    system_template: |-\n      " + PROSE + "    next: short\n"
        "    instance_template: |-\n      Solve the problem that stands here: {{problem}}.\n"
    ),
    "data/chat.json": json.dumps(
        [
            {"role": "system", "content": PROSE},
            {"role": "user", "content": "Where is Rome?"},
            {"role": "assistant", "content": "In Italy."},
            {"role": "user", "content": "{question}"},
        ]
    ),
    "broken.yaml": "a: [",
}
MODELS = {
    "templates/chatml.jinja": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}",
    "templates/nginx.conf.j2": "server { listen 80; } some more words to make it long",
    "bots/support/system.md": PROSE,
}
LAYOUTS = {"agents": AGENTS, "shared": SHARED, "configs": CONFIGS, "models": MODELS}
PROMPTS = {
    "agents": {"planner-prompt", "coder-prompt"},
    "shared": {"answer", "plain", "cite"},
    "configs": {"default-agent-system_template", "default-agent-instance_template", "chat"},
    "models": {"support-system"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lint_and_bump_accept_what_is_proposed(tmp_path: Path, layout: str):
    root = write(tmp_path, LAYOUTS[layout])
    before = tree(root)
    proposal = propose_adoption(root)
    assert tree(root) == before
    assert set(proposal.prompts) == PROMPTS[layout]
    written = write_adoption(root, proposal)
    after = tree(root)
    assert set(after) - set(before) == set(written)
    assert {p: after[p] for p in before} == before
    config = load_config(root / "prefixctl.yaml")
    report = lint_paths(config, baseline=root / "prefixctl-baseline.json")
    assert not report.unreadable
    assert report.findings == ()
    bumped = bump_prompts(config, reason="x", author="a").bumped
    assert {b.name for b in bumped} == PROMPTS[layout]
    assert check_prompts(config).drifts == ()
    again = propose_adoption(root)
    assert (again.files, again.prompts, again.governed) == ((), (), len(PROMPTS[layout]))


def test_a_template_that_is_alone_stays_where_it_is(tmp_path: Path):
    write_adoption(write(tmp_path, AGENTS), propose_adoption(tmp_path))
    folder = tmp_path / "src" / "agents" / "planner"
    assert sorted(p.name for p in folder.iterdir()) == [
        "planner.py",
        "prompt.jinja2",
        "prompt.yaml",
    ]
    assert load_config(tmp_path / "prefixctl.yaml").prompts == Path("src/agents")
    text = (folder / "prompt.yaml").read_text()
    assert "question: {scope: request}  # guess" in text
    coder = load_prompt(tmp_path / "src" / "agents" / "coder")
    assert [s.kind.value for s in coder.sections] == ["system_prompt"]


def test_a_prompt_without_a_question_gets_a_section_for_it(tmp_path: Path):
    write_adoption(write(tmp_path, SHARED), propose_adoption(tmp_path))
    prompt = load_prompt(tmp_path / "governed" / "plain")
    assert [s.kind.value for s in prompt.sections] == ["system_prompt", "user"]
    assert prompt.parameters["question"].scope is Volatility.REQUEST


def test_braces_become_a_template_of_the_same_words(tmp_path: Path):
    write_adoption(write(tmp_path, SHARED), propose_adoption(tmp_path))
    prompt = load_prompt(tmp_path / "governed" / "cite")
    values = {"passages": "P", "user_name": "Ada"}
    (message,) = render(prompt, values).messages
    source = SHARED["rag/prompts/cite.txt"]
    assert message["content"].strip() == source.format(**values).strip()
    assert prompt.parameters["user_name"].scope is Volatility.USER


@pytest.mark.parametrize("text", ["{a}", "{{a}}", "{% x %} {a}", "{# {a} #}", "{{{a}}}", "{ a }"])
def test_escapes_of_formats(text):
    from jinja2 import Environment

    made = Environment(autoescape=False, keep_trailing_newline=True).from_string(as_jinja(text))
    expected = text.replace("{{", "\0").replace("}}", "\1").replace("{a}", "V")
    if text == "{{{a}}}":
        expected = "{V}"
    assert made.render(a="V") == expected.replace("\0", "{").replace("\1", "}")


def test_a_message_list_becomes_sections_by_role(tmp_path: Path):
    write_adoption(write(tmp_path, CONFIGS), propose_adoption(tmp_path))
    prompt = load_prompt(tmp_path / "governed" / "chat")
    assert [s.kind.value for s in prompt.sections] == ["system_prompt", "few_shot", "user"]
    request = render(prompt, example_values(prompt, 0))
    assert [m["role"] for m in request.messages] == ["system", "user", "assistant", "user"]


def test_chat_templates_go_to_the_target_and_are_no_prompts(tmp_path: Path):
    proposal = propose_adoption(write(tmp_path, MODELS))
    assert proposal.chat_templates == ("templates/chatml.jinja",)
    (config,) = [f.text for f in proposal.files if f.path == "prefixctl.yaml"]
    assert '#     chat_template: "templates/chatml.jinja"' in config


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{{ user.name }}", "reads a field of `user`"),
        ("{% for d in docs %}{{ d }}{% endfor %}", "loops over `docs`"),
        ("{{ now() }}", "calls now()"),
        ("{% include 'missing.j2' %}", "includes 'missing.j2'"),
        ("{% include '../up.j2' %}", "outside its folder"),
        ("{{ a | nope }}", "broken template"),
        ("{% if %}", "broken template"),
        ("{{ 1 // 0 }}", "cannot be rendered"),
    ],
)
def test_what_cannot_be_governed_is_left_out_with_a_reason(tmp_path: Path, line: str, reason: str):
    write(tmp_path, AGENTS | {"src/agents/odd/prompt.jinja2": PROSE + line})
    (left,) = propose_adoption(tmp_path).left_out
    assert left.path == "src/agents/odd/prompt.jinja2"
    assert reason in left.reason


def test_included_files_come_along(tmp_path: Path):
    files = {
        "p/prompts/a.j2": PROSE + "{% include 'part.j2' %}",
        "p/prompts/b.j2": PROSE + "Another one.",
        "p/prompts/part.j2": "Ask about {{ topic }}.",
    }
    write_adoption(write(tmp_path, files), propose_adoption(tmp_path))
    prompt = load_prompt(tmp_path / "governed" / "a")
    assert set(prompt.parameters) >= {"topic"}
    assert "part.j2" in prompt.files


def test_nothing_that_exists_is_overwritten(tmp_path: Path):
    own = {"prefixctl.yaml": "prompts: mine\n", ".github/workflows/prefixctl.yaml": "mine\n"}
    write(tmp_path, SHARED | own)
    proposal = propose_adoption(tmp_path)
    assert set(proposal.present) == set(own)
    write_adoption(tmp_path, proposal)
    assert (tmp_path / "prefixctl.yaml").read_text() == "prompts: mine\n"
    assert len(find_prompts(tmp_path / "mine")) == 3
    with pytest.raises(InputError):
        write_adoption(tmp_path, proposal)


def test_a_later_prompt_is_added_and_the_others_stay(tmp_path: Path):
    write_adoption(write(tmp_path, SHARED), propose_adoption(tmp_path))
    before = tree(tmp_path)
    write(tmp_path, {"rag/prompts/late.md": PROSE})
    proposal = propose_adoption(tmp_path)
    assert proposal.prompts == ("late",)
    write_adoption(tmp_path, proposal)
    assert {p: tree(tmp_path)[p] for p in before} == before


def test_names_that_yaml_reads_as_something_else(tmp_path: Path):
    text = PROSE + "{{ on }} {{ null_value }} {{ y }}"
    write(tmp_path, {"a/prompts/one.j2": text, "a/prompts/two.j2": PROSE})
    write_adoption(tmp_path, propose_adoption(tmp_path))
    loaded = yaml.safe_load((tmp_path / "governed" / "one" / "prompt.yaml").read_text("utf-8"))
    assert set(loaded["parameters"]) == {"on", "null_value", "y"}


def test_a_file_that_lint_cannot_read_is_excluded(tmp_path: Path):
    write(tmp_path, AGENTS | {"src/agents/broken.jinja2": "{% if %}" + PROSE})
    proposal = propose_adoption(tmp_path)
    write_adoption(tmp_path, proposal)
    config = load_config(tmp_path / "prefixctl.yaml")
    assert config.lint.exclude == ("src/agents/broken.jinja2",)
    assert not lint_paths(config).unreadable


def test_scopes_are_guessed_from_names():
    wanted = {"current_time": Volatility.SECOND, "user_name": Volatility.USER,
              "tenant_name": Volatility.TENANT, "xyzzy": Volatility.REQUEST}  # fmt: skip
    assert {name: guess_scope(name).scope for name in wanted} == wanted
    assert "nothing" in guess_scope("xyzzy").reason


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", *words])
    if isinstance(result.exception, PrefixctlError):
        return result.exception.exit_code, str(result.exception)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_the_command(tmp_path: Path):
    write(tmp_path, AGENTS)
    before = tree(tmp_path)
    code, out = run(str(tmp_path))
    assert code == 0
    assert tree(tmp_path) == before
    assert "--- src/agents/planner/prompt.yaml\n# Adopted from: src/agents/planner/" in out
    assert "nothing was changed" in out
    code, out = run(str(tmp_path), "--format", "json")
    assert set(json.loads(out)["prompts"]) == PROMPTS["agents"]
    code, out = run(str(tmp_path), "--write")
    assert (code, "wrote prefixctl.yaml" in out) == (0, True)
    code, out = run(str(tmp_path), "--write")
    assert (code, out) == (0, "nothing to do: 2 prompts governed\n")


def test_nothing_found_is_never_a_clean_pass(tmp_path: Path):
    assert run(str(tmp_path))[0] == 3
    assert run(str(tmp_path / "missing"))[0] == 3
    write(tmp_path, {"prompts/a.j2": PROSE + "{{ user.name }}"})
    with pytest.raises(NothingToDoError) as caught:
        propose_adoption(tmp_path)
    assert "reads a field" in (caught.value.hint or "")


def test_hostile_files_end(tmp_path: Path):
    levels = "".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9)}]\n" for i in range(1, 12))
    write(
        tmp_path,
        SHARED
        | {
            "prompts/aliases.yaml": "k0: &k0 [x]\n" + levels,
            "prompts/open.j2": "{{" * 100_000,
            "prompts/loops.j2": "{% for m in messages %}" * 10_000,
            "prompts/holes.md": "{a" * 100_000,
        },
    )
    assert set(propose_adoption(tmp_path).prompts) >= PROMPTS["shared"]


def test_only_markdown_notes_about_a_project_are_passed_over(tmp_path):
    root = write(
        tmp_path,
        {
            "AGENTS.md": PROSE, "CLAUDE.md": PROSE, "agents/README.md": PROSE,
            "agents/requirements.txt": PROSE,
            "agents.yaml": f"planner:\n  system_prompt: {PROSE}",
            "claude.yaml": f"system_prompt: {PROSE}", "readme.yaml": f"system_prompt: {PROSE}",
            "prompts/agents.j2": PROSE, "prompts/claude.md": PROSE, "prompts/history.txt": PROSE,
            "prompts/README.md": PROSE,
        },
    )  # fmt: skip
    found = find_candidates(root)
    assert {c.source for c in found.candidates} == {
        "agents.yaml", "claude.yaml", "readme.yaml",
        "prompts/agents.j2", "prompts/claude.md", "prompts/history.txt",
    }  # fmt: skip
    assert [x.path for x in found.left_out] == ["prompts/README.md"]


def test_the_closing_line_names_the_target(tmp_path):
    root = write(tmp_path, AGENTS)
    done = CliRunner().invoke(app, ["init", str(root), "--write"])
    assert "fill in `targets:` in prefixctl.yaml" in done.output
    again = write(root, {"src/agents/writer/prompt.jinja2": PROSE + "Write {{ text }}\n"})
    done = CliRunner().invoke(app, ["init", str(again), "--write"])
    assert "next: check the guesses, run" in done.output
