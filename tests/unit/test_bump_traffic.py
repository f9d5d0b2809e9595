"""`bump --check --log`: whose requests a log holds, and which of them go cold."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from sample import write_prompt
from test_versions_cli import invoke

from prefixctl.api.versions import (
    bump_prompts,
    check_prompts,
    check_traffic,
    publish_prompts,
    render_request,
)
from prefixctl.config import load_config
from prefixctl.prompts.load import load_prompt
from prefixctl.prompts.render import render
from prefixctl.registry.bump_traffic import PromptTraffic, Traffic
from prefixctl.sources.lockfile import load_lock


def body(project: Path, question: str = "Where is it?", name: str = "support") -> dict[str, Any]:
    made = render_request(load_config(project / "prefixctl.yaml"), name,
                          values={"question": question})  # fmt: skip
    return {"model": "tiny-model", "messages": list(made.messages), "tools": list(made.tools or ())}


def anthropic(openai: Mapping[str, Any]) -> dict[str, Any]:
    system, *rest = openai["messages"]
    tools = [
        {
            "name": t["function"]["name"],
            "description": t["function"]["description"],
            "input_schema": t["function"]["parameters"],
        }
        for t in openai["tools"]
    ]
    return {"system": system["content"], "messages": rest, "tools": tools}


def write_log(project: Path, *records: Any) -> Path:
    path = project / "log.jsonl"
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    path.write_text("\n".join(lines) + "\n")
    return path


def traffic(project: Path, log: Path, *names: str) -> Traffic:
    config = load_config(project / "prefixctl.yaml")
    return check_traffic(config, check_prompts(config, names), log)


def of(found: Traffic, name: str = "support") -> PromptTraffic:
    return next(p for p in found.prompts if p.name == name)


def bump(project: Path) -> None:
    bump_prompts(load_config(project / "prefixctl.yaml"), reason="r", author="a")


def commit(project: Path) -> None:
    git = shutil.which("git")
    assert git
    for words in (["init", "-q"], ["add", "."],
                  ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):  # fmt: skip
        subprocess.run([git, *words], cwd=project, check=True, capture_output=True)


def edit(project: Path, name: str = "support") -> None:
    """Change the last words of the system text, behind the first blocks."""
    path = project / "templates" / name / "system.md"
    path.write_text(path.read_text() + "One more rule. " * 20)


@pytest.fixture
def committed(project: Path) -> Path:
    """A project with two bumped prompts, in git, and no registry."""
    write_prompt(project / "templates" / "other")
    (project / "templates" / "other" / "system.md").write_text("Another agent. " * 40)
    bump(project)
    commit(project)
    return project


class TestMatching:
    def test_by_text_in_both_styles_whatever_the_line_says(self, committed: Path) -> None:
        mine, theirs = body(committed), body(committed, name="other")
        log = write_log(
            committed,
            mine,
            {"request": anthropic(mine), "prompt_name": "other"},
            {"timestamp": 3, "request": theirs},
            {"messages": [{"role": "user", "content": "Hi"}]},
        )
        found = traffic(committed, log)
        assert (of(found).requests, of(found, "other").requests) == (2, 1)
        assert (found.requests, found.matched, found.unmatched) == (4, 3, 1)
        assert found.cold_requests == found.cold_tokens == 0

    def test_a_name_without_the_text_is_not_enough(self, committed: Path) -> None:
        words = {"messages": [{"role": "user", "content": "Hi"}]}
        found = traffic(committed, write_log(committed, {"request": words,
                                                         "prompt_name": "support"}))  # fmt: skip
        assert (found.matched, found.misnamed) == (0, 1)

    def test_a_server_that_adds_the_text_goes_by_the_reference(self, committed: Path) -> None:
        words = {"messages": [{"role": "user", "content": "Hi"}]}
        lock = load_lock(committed / "templates" / "prefixes.lock.yaml")
        record = lock.prompts["support"][0].targets["tiny"]
        found = traffic(
            committed,
            write_log(
                committed,
                {**words, "prefix_key": "support"},
                {**words, "prefix_key": "support@1"},
                {**words, "prefix_key": "support@7"},
                {"request": words, "prefix_key": record.key},
                {"prefix_key": record.key},
            ),
        )
        assert (of(found).requests, found.unmatched) == (4, 1)
        assert of(found).prompt_tokens >= 3 * record.shared_tokens

    def test_the_gateways_own_log(self, committed: Path) -> None:
        line = {"path": "/v1/chat/completions", "tenant": "t-1", "status": 200, "gateway_ms": 0.4,
                "prompt_tokens": 400, "cached_tokens": 320, "ms": 9.0}  # fmt: skip
        log = write_log(
            committed,
            {**line, "prefix": "support@1", "state": "full"},
            {**line, "prefix": "support@9"},
            line,
            {**line, "status": 401, "reason": "no_tenant"},
        )
        edit(committed)
        found = traffic(committed, log)
        assert (of(found).requests, found.unmatched, found.failed) == (1, 2, 1)
        assert (found.prompt_tokens, found.counted_requests) == (1200, 0)
        assert found.cold_requests == 1

    def test_a_request_that_only_begins_alike_is_another(self, committed: Path) -> None:
        changed = body(committed)
        changed["messages"][0]["content"] += "!"
        without_tools = body(committed) | {"tools": None}
        shorter = body(committed)
        shorter["messages"] = shorter["messages"][:1]
        found = traffic(committed, write_log(committed, changed, without_tools, shorter))
        assert (found.matched, found.unmatched) == (0, 3)

    @pytest.mark.parametrize(
        "question",
        ["", " ", "\n\n", "Alpha 1", "zulu", "你好", "{{ x }}", "<|im_end|>", "a" * 9999],
    )
    def test_whatever_is_asked_the_request_is_known(self, committed: Path, question: str) -> None:
        made = body(committed, question)
        found = traffic(committed, write_log(committed, made, {"request": anthropic(made)}))
        assert of(found).requests == 2


class TestCold:
    def test_the_share_of_an_edit(self, committed: Path) -> None:
        usage = {"prompt_tokens": 400}
        log = write_log(
            committed,
            *[{"request": body(committed, f"{i}?"), "usage": usage} for i in range(3)],
            {"request": body(committed, name="other"), "usage": usage},
            "broken",
        )
        edit(committed)
        found = traffic(committed, log)
        (drift,) = check_prompts(load_config(committed / "prefixctl.yaml")).drifts
        assert drift.change is not None
        cold = drift.change.targets[0].cold_tokens
        assert 0 < cold < 400
        assert of(found).text_found
        assert (found.cold_requests, found.cold_tokens) == (3, 3 * cold)
        assert (found.prompt_tokens, found.counted_requests) == (1600, 0)
        assert [m.line for m in found.malformed] == [5]
        assert not of(found, "other").changed

    def test_the_registry_has_the_text_without_git(self, project: Path) -> None:
        bump(project)
        publish_prompts(load_config(project / "prefixctl.yaml"), by="a")
        log = write_log(project, body(project))
        edit(project)
        assert of(traffic(project, log)).cold_requests == 1

    def test_without_any_text_the_blocks_of_the_lock_tell(self, project: Path) -> None:
        bump(project)
        mine = body(project)
        other = body(project)
        other["messages"][0]["content"] = "x" + other["messages"][0]["content"]
        picture = {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
        log = write_log(project, mine, anthropic(mine), other, picture)
        edit(project)
        found = traffic(project, log)
        assert not of(found).text_found
        assert of(found).by_blocks
        assert (of(found).requests, of(found).cold_requests, found.unmatched) == (2, 2, 2)

    def test_without_text_and_target_it_says_so(self, project: Path) -> None:
        (project / "prefixctl.yaml").write_text("{}\n")
        bump(project)
        log = write_log(project, body(project))
        edit(project)
        found = traffic(project, log)
        assert not of(found).text_found
        assert not of(found).by_blocks
        assert found.unmatched == 1

    def test_git_finds_the_version_behind_later_commits(self, committed: Path) -> None:
        log = write_log(committed, body(committed))
        edit(committed)
        commit(committed)
        edit(committed)
        found = traffic(committed, log)
        assert of(found).text_found
        assert of(found).cold_requests == 1

    def test_tokens_are_counted_where_no_usage_is_logged(self, committed: Path) -> None:
        found = traffic(committed, write_log(committed, body(committed)))
        lock = load_lock(committed / "templates" / "prefixes.lock.yaml")
        record = lock.prompts["support"][0].targets["tiny"]
        assert found.counted_requests == 1
        assert found.counts_exact
        assert abs(found.prompt_tokens - record.request_tokens) < 0.25 * record.request_tokens

    def test_without_a_target_it_is_estimated(self, committed: Path) -> None:
        config = committed / "prefixctl.yaml"
        config.write_text("{}\n")
        bump(committed)
        log = write_log(committed, body(committed))
        edit(committed)
        found = traffic(committed, log)
        assert found.cold_requests == 1
        assert 0 < found.cold_tokens < found.prompt_tokens
        assert not found.counts_exact

    def test_a_rendered_completion(self, committed: Path) -> None:
        from prefixctl.prompts.target import load_target

        target = load_target(load_config(committed / "prefixctl.yaml"), "tiny")
        prompt = load_prompt(committed / "templates" / "support")
        text = target.tokenizer.render(render(prompt, {"question": "Hm?"}))
        log = write_log(committed, {"prompt": text}, {"prompt": "x" + text})
        found = traffic(committed, log)
        assert (of(found).requests, found.unmatched) == (1, 1)


class TestHostile:
    @pytest.mark.parametrize("text_at_hand", [True, False])
    def test_lines_that_no_client_sends(self, project: Path, text_at_hand: bool) -> None:
        bump(project)
        deep = '{"messages":[{"role":"user","content":' + "[" * 900 + "]" * 900 + "}]}"
        tools = '{"type":"function","function":{"name":"f","parameters":' + '{"a":' * 900
        lines = [
            '{"messages": [{"role": "user", "content": "\\ud800"}]}',
            '{"messages": [{"role": "user", "content": {"a": 1}}]}',
            '{"messages": [{"role": 3, "content": ""}]}',
            '{"messages": [{"role": "user", "content": ["a", 3, {"type": "x"}]}], "tools": [3]}',
            '{"messages": [], "tools": [{"function": null}]}',
            '{"messages": [{"role": "assistant", "tool_calls": [{"function": "f"}, 4]}]}',
            '{"system": 4, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}',
            deep,
            '{"messages": [], "tools": [' + tools + "1" + "}" * 900 + "}}]}",
            '{"prompt": ""}',
        ]
        log = write_log(project, *lines, body(project))
        if not text_at_hand:
            edit(project)
        found = traffic(project, log)
        assert found.requests + found.malformed_count == len(lines) + 1
        assert of(found).requests == 1


class TestWithoutATarget:
    def edited(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A project without targets whose prompt was edited, in no git and no registry."""
        path = project / "prefixctl.yaml"
        config = yaml.safe_load(path.read_text())
        del config["targets"]
        path.write_text(yaml.safe_dump(config))
        log = write_log(project, {"prefix_key": "support", **body(project)})
        bump(project)
        edit(project)
        monkeypatch.chdir(project)
        return log

    def test_unknown_is_not_nothing(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = self.edited(project, monkeypatch)
        found = invoke(["bump", "--check", "--log", str(log)])
        assert found.code == 5
        assert "no target in prefixctl.yaml, so tokens and blocks are not known" in found.out
        assert "becomes cold" not in found.out
        assert "goes cold: unknown for support@1: no target" in found.out
        assert "0.0%), 0 prompt tokens" not in found.out
        value = invoke(["bump", "--check", "--log", str(log), "--format", "json"]).json()
        assert value["traffic"]["cold_requests"] is None
        assert value["traffic"]["prompts"][0]["cold_tokens"] is None

    def test_the_text_as_it_was_tells_it(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = self.edited(project, monkeypatch)
        edited = (project / "templates/support/system.md").read_text()
        (project / "templates/support/system.md").write_text(edited.replace("One more rule. ", ""))
        commit(project)
        (project / "templates/support/system.md").write_text("Now " + edited)
        found = invoke(["bump", "--check", "--log", str(log)])
        assert "goes cold: 1 request (100.0%)" in found.out

    def test_bump_and_history_say_it(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.edited(project, monkeypatch)
        for words in (["bump", "--reason", "more", "--author", "a"], ["history", "support"]):
            found = invoke(words)
            assert "fill in `targets:`" in found.out
            assert "becomes cold" not in found.out


class TestCommand:
    def test_text_and_json(self, committed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = {"messages": [{"role": "user", "content": "Hi"}]}
        log = write_log(committed, body(committed), other, "{")
        monkeypatch.chdir(committed)
        clean = invoke(["bump", "--check", "--log", str(log)])
        assert clean.code == 0
        assert "goes cold: 0 requests (0.0%), 0 prompt tokens (0.0%)" in clean.out
        edit(committed)
        found = invoke(["bump", "--check", "--log", str(log)])
        assert found.code == 5
        assert "goes cold: 1 request (50.0%)" in found.out
        assert "- support@1: 1 request (50.0%), " in found.out
        assert "other@1" not in found.out
        assert "- no governed prompt: 1 request (50.0%)" in found.out
        assert "- left out: 1 malformed line (line 3: not JSON)" in found.out
        value = invoke(["bump", "--check", "--log", str(log), "--format", "json"]).json()
        assert value["traffic"]["cold_request_share"] == 0.5
        assert value["traffic"]["malformed"] == [{"line": 3, "reason": "not JSON"}]
        assert value["drifts"][0]["prompt"] == "support"

    def test_an_empty_log_is_never_a_pass(
        self, committed: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(committed)
        (committed / "empty.jsonl").write_text("")
        assert invoke(["bump", "--check", "--log", "empty.jsonl"]).code == 3
        (committed / "wrong.jsonl").write_text('{"messages": [{"content": "x"}]}\n')
        assert invoke(["bump", "--check", "--log", "wrong.jsonl"]).code == 3
        assert invoke(["bump", "--check", "--log", "none.jsonl"]).code == 3

    def test_only_with_check(self, committed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(committed)
        assert invoke(["bump", "--log", "x"]).code == 2
