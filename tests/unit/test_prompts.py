from __future__ import annotations

from pathlib import Path

import pytest
from sample import PROMPT_YAML, WORDS, write_prompt

from prefixctl.config import load_config
from prefixctl.core.prompt import SectionKind
from prefixctl.errors import NothingToDoError, PromptError
from prefixctl.ids import PromptName
from prefixctl.prompts.load import find_prompts, load_prompt, parse_prompt
from prefixctl.prompts.render import PROBE_VALUES, example_values, probe_values, render


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_prompt(tmp_path / "support")
    return tmp_path / "support"


def test_sections_become_a_chat_request(folder: Path) -> None:
    request = render(load_prompt(folder), {"question": "Where?"})
    assert [m["role"] for m in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[0]["content"] == WORDS * 3
    assert request.messages[-1]["content"] == "Where?"
    assert request.tools is not None
    assert request.tools[0]["function"]["name"] == "order_status"


def test_text_sections_of_one_role_join_into_one_message(folder: Path) -> None:
    (folder / "handbook.md").write_text("Chapter 1")
    text = PROMPT_YAML.replace(
        "  - kind: tools", "  - {kind: document, file: handbook.md}\n  - kind: tools"
    )
    (folder / "prompt.yaml").write_text(text)
    request = render(load_prompt(folder), {"question": "?"})
    assert request.messages[0]["content"] == WORDS * 3 + "\n\nChapter 1"


def test_sections_can_be_left_out(folder: Path) -> None:
    request = render(
        load_prompt(folder), {"question": "?"}, leave_out={SectionKind.TOOLS, SectionKind.FEW_SHOT}
    )
    assert request.tools is None
    assert len(request.messages) == 2


@pytest.mark.parametrize(
    ("file", "text", "line", "words"),
    [
        ("user.md.j2", "a\n{{ quesion }}", 2, "undefined parameter 'quesion'"),
        ("user.md.j2", "a\n{% if %}", 2, "broken template"),
        ("user.md.j2", "{% include '../../etc/passwd' %}", None, "leaves the prompt folder"),
        ("user.md.j2", "{% include question %}", None, "computed name"),
        ("user.md.j2", "{% include 'gone.md' %}", None, "no such file"),
        ("prompt.yaml", PROMPT_YAML.replace("scope: request", "scope: never"), 12, "no scope"),
        ("prompt.yaml", PROMPT_YAML.replace("system.md", "../system.md"), 4, "leaves the prompt"),
        ("prompt.yaml", PROMPT_YAML.replace("system.md", "/etc/passwd"), 4, "leaves the prompt"),
        ("prompt.yaml", PROMPT_YAML.replace("system.md", "sistem.md"), None, "no such file"),
        (
            "prompt.yaml",
            PROMPT_YAML.replace("scope: request", "scope: constant"),
            12,
            "needs a value",
        ),
        (
            "prompt.yaml",
            PROMPT_YAML.replace("scope: request", "scope: request, value: x"),
            12,
            "has a value",
        ),
        ("prompt.yaml", PROMPT_YAML.replace("kind: tools", "kind: tool"), 5, "kind"),
        ("prompt.yaml", "", 1, "'sections' is missing"),
        ("prompt.yaml", "sections: []\n", 1, "sections"),
    ],
)
def test_a_wrong_prompt_names_file_and_line(
    folder: Path, file: str, text: str, line: int | None, words: str
) -> None:
    (folder / file).write_text(text)
    with pytest.raises(PromptError) as caught:
        load_prompt(folder)
    assert words in caught.value.message
    if line is not None:
        assert (caught.value.path, caught.value.line) == (str(folder / file), line)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("tools.json", '[{"type": "function",]', "broken JSON"),
        ("tools.json", '{"a": 1}', "not a list of tool schemas"),
        ("few_shot.yaml", "- hello", "valid dictionary"),
        ("few_shot.yaml", "[]", "holds no message"),
        ("few_shot.yaml", "- {role: user, content: [1]}", "content"),
        ("few_shot.yaml", "- {role: user, content: 2024-01-01}", "content"),
        ("few_shot.yaml", "- {role: user, contnt: x}", "unknown key '0.contnt'"),
        (
            "few_shot.yaml",
            "- {role: assistant, tool_calls: [{id: x}]}",
            "without a function's name",
        ),
        ("few_shot.yaml", "- {role: user, content: !!bool maybe}", "broken YAML"),
        ("tools.json", '[{"function": null}]', "tool 1 is no tool schema"),
        ("tools.json", '[{"function": {"name": "f", "parameters": 1}}]', "no JSON schema"),
        ("few_shot.yaml", "- {role: user", "broken YAML"),
        ("user.md.j2", "{{ question.missing.deeper }}", "cannot be rendered"),
        ("user.md.j2", "{{ ''.__class__.__mro__ }}{{ question }}", "cannot be rendered"),
    ],
)
def test_a_section_that_cannot_be_rendered_is_named(
    folder: Path, file: str, text: str, words: str
) -> None:
    (folder / file).write_text(text)
    with pytest.raises(PromptError, match=words) as caught:
        render(load_prompt(folder), {"question": "?"})
    assert caught.value.path == f"{folder}/{file}"


def test_a_missing_value_is_named(folder: Path) -> None:
    with pytest.raises(PromptError, match="no value for question"):
        render(load_prompt(folder), {})


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (folder / "system.md").unlink()
    (folder / "system.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(PromptError, match="leads out of the prompt folder"):
        load_prompt(folder)


def test_line_ends_survive_and_the_byte_order_mark_is_not_sent(folder: Path) -> None:
    (folder / "system.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    (folder / "user.md.j2").write_bytes(b"a\r\n{{ question }}\r\n")
    prompt = load_prompt(folder)
    request = render(prompt, {"question": "?"})
    assert request.messages[0]["content"] == "one\r\ntwo\rthree\n"
    assert request.messages[-1]["content"] == "a\r\n?\r\n"
    assert prompt.files["system.md"].startswith(b"\xef\xbb\xbf")


def test_bytes_that_are_not_utf8_are_named(folder: Path) -> None:
    (folder / "system.md").write_bytes("第一\n第二".encode("gbk"))
    with pytest.raises(PromptError, match="GBK, where UTF-8 is needed"):
        load_prompt(folder)


def test_included_files_belong_to_the_prompt(folder: Path) -> None:
    (folder / "system.md").rename(folder / "system.md.j2")
    (folder / "prompt.yaml").write_text(PROMPT_YAML.replace("system.md", "system.md.j2"))
    (folder / "system.md.j2").write_text("{% include 'rules.md' %}")
    (folder / "rules.md").write_text("Rule 1")
    prompt = load_prompt(folder)
    before = prompt.content_digest()
    assert render(prompt, {"question": "?"}).messages[0]["content"] == "Rule 1"
    again = parse_prompt(prompt.files, name=PromptName("x"), origin="registry")
    assert again.content_digest() == before
    (folder / "rules.md").write_text("Rule 2")
    assert load_prompt(folder).content_digest() != before


def test_a_rename_or_a_new_description_changes_no_content(folder: Path) -> None:
    before = load_prompt(folder).content_digest()
    (folder / "prompt.yaml").write_text(
        PROMPT_YAML.replace("A support agent.", "Another word.") + "name: other\n"
    )
    prompt = load_prompt(folder)
    assert prompt.name == "other"
    assert prompt.content_digest() == before


def test_a_section_type_is_content(folder: Path) -> None:
    before = load_prompt(folder).content_digest()
    text = PROMPT_YAML.replace("kind: system_prompt", "kind: document")
    (folder / "prompt.yaml").write_text(text)
    assert load_prompt(folder).content_digest() != before


def test_probe_values_differ_from_the_first_character(folder: Path) -> None:
    prompt = load_prompt(folder)
    firsts = {probe_values(prompt, i)["question"][0] for i in range(len(PROBE_VALUES))}
    assert len(firsts) == len(PROBE_VALUES)


def test_deployment_values_come_from_the_target(folder: Path) -> None:
    text = PROMPT_YAML + "  brand: {scope: deployment, examples: [Northwind]}\n"
    (folder / "prompt.yaml").write_text(text)
    prompt = load_prompt(folder)
    given = {"brand": "Globex", "question": "ignored: not a deployment value"}
    assert (
        probe_values(prompt, 0, given)["brand"]
        == probe_values(prompt, 1, given)["brand"]
        == "Globex"
    )
    assert probe_values(prompt, 0, given)["question"] != given["question"]
    with pytest.raises(PromptError, match="no value for the deployment parameter 'brand'"):
        probe_values(prompt, 0)
    assert example_values(prompt, 0, {"brand": "Globex"})["brand"] == "Globex"


def test_finding_prompts(tmp_path: Path) -> None:
    with pytest.raises(NothingToDoError, match="no such folder"):
        find_prompts(tmp_path / "none")
    with pytest.raises(NothingToDoError, match="no governed prompt"):
        find_prompts(tmp_path)
    write_prompt(tmp_path / "b")
    write_prompt(tmp_path / "deep" / "a")
    assert find_prompts(tmp_path) == [tmp_path / "b", tmp_path / "deep" / "a"]


def test_the_shipped_prompts_load(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    config = load_config(root / "prefixctl.yaml")
    names = {load_prompt(f).name for f in find_prompts(config.prompts_dir)}
    assert {"support-agent", "kefu-zh", "handbook-rag", "coding-agent"} <= names


def test_a_loop_variable_reaches_an_included_file(folder: Path) -> None:
    (folder / "user.md.j2").write_text(
        "{% for item in question %}{% include 'item.md' %}{% endfor %}"
        "{% include 'none.md' ignore missing %}"
    )
    (folder / "item.md").write_text("<{{ item }}>")
    request = render(load_prompt(folder), {"question": "ab"})
    assert request.messages[-1]["content"] == "<a><b>"


def test_hidden_folders_and_nested_prompts_are_no_prompts_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "a/nested", ".hidden", "node_modules/x"):
        write_prompt(tmp_path / name)
    assert find_prompts(tmp_path) == [tmp_path / "a"]


def test_a_folders_name_must_be_a_name(tmp_path: Path) -> None:
    write_prompt(tmp_path / "w@2")
    with pytest.raises(PromptError, match="'w@2' is no name"):
        load_prompt(tmp_path / "w@2")
