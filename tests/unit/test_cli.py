"""The command line as a process: start-up, exit codes, clear errors, no secrets."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sample import PROMPT_YAML, write_prompt

import prefixctl.cli.main
from prefixctl.config import load_config
from prefixctl.prompts.render import probe_values, render
from prefixctl.prompts.target import load_target

SECRET = "planted-secret-0123456789"


@dataclass(frozen=True)
class Done:
    """What a command ended with."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command line in the project, in this process, as its entry point does."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("NO_COLOR", "1")

    def run_command(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["prefixctl", *words])
        with pytest.raises(SystemExit) as ended:
            prefixctl.cli.main.run()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run_command


def test_starting_imports_neither_torch_nor_vllm_nor_what_only_one_command_needs() -> None:
    code = (
        "import sys, prefixctl.cli.main\n"
        "heavy = {'torch', 'vllm', 'transformers', 'tokenizers', 'httpx', 'jinja2', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_command_of_the_main_job_imports_the_engine(project: Path) -> None:
    code = (
        "import sys\n"
        "from prefixctl.api import audit, lint, rules, serve, versions, warm\n"
        "import prefixctl.demo.run\n"
        "print(sorted({'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_and_help(run) -> None:
    assert run("--version").stdout == "prefixctl 0.1.0\n"
    listed = run("--help").stdout
    for command in ("lint", "bump", "warm", "rules", "audit", "serve", "demo"):
        assert command in listed


def test_a_near_miss_of_a_command_gets_a_suggestion(run) -> None:
    done = run("lnit")
    assert done.returncode == 2
    assert "lint" in done.stderr
    assert not done.stdout


def break_file(project: Path, file: str, text: str) -> None:
    (project / file).write_text(text)


PROMPT = "templates/support"


@pytest.mark.parametrize(
    ("file", "text", "command", "code", "words"),
    [
        ("prefixctl.yaml", "targets:\n  a: [\n", ["bump"], 3, "prefixctl.yaml:3"),
        ("prefixctl.yaml", "a: 1\ntargts: {}\n", ["bump"], 3, "prefixctl.yaml:1"),
        ("prefixctl.yaml", "targts: {}\n", ["bump"], 3, "did you mean targets?"),
        (
            f"{PROMPT}/user.md.j2",
            "x\n{{ quesion }}",
            ["bump"],
            3,
            "user.md.j2:2: undefined parameter",
        ),
        (f"{PROMPT}/user.md.j2", "{{ quesion }}", ["bump"], 3, "did you mean question?"),
        (f"{PROMPT}/prompt.yaml", PROMPT_YAML.replace("system.md", "no.md"), ["bump"], 3, "no.md"),
        (f"{PROMPT}/tools.json", "[{]", ["bump"], 3, "tools.json:1:3: broken JSON"),
        (
            "prefixctl.yaml",
            "targets: {t: {model: m, tokenizer: nowhere}}\n",
            ["bump"],
            3,
            "nowhere/tokenizer.json: no such file",
        ),
        ("prefixctl.yaml", "", ["warm"], 3, "no target"),
        (
            "prefixctl.yaml",
            "targets: {t: {model: m, parameters: {regoin: x}}}\n",
            ["bump"],
            3,
            "no prompt has a deployment parameter 'regoin'",
        ),
        ("x", "", ["warm"], 2, "no server to warm"),
        ("x", "", ["warm", "--server", "http://127.0.0.1:1"], 3, "registry"),
        ("x", "", ["bump", "suport"], 2, "did you mean support?"),
        ("x", "", ["bump", "--check"], 5, "support"),
        ("x", "", ["--config", "nowhere.yaml", "bump"], 3, "nowhere.yaml: no such file"),
        ("x", "", ["lint", "nowhere"], 3, "nowhere"),
        ("x", "", ["audit", "probe"], 2, "no server to probe"),
        ("x", "", ["audit", "probe", "--tenant", "a"], 2, "two tenants"),
        ("x", "", ["audit", "probe", "--server", "http://127.0.0.1:1"], 4, "does not answer"),
        ("x", "", ["serve", "--target", "tinny"], 3, "did you mean tiny?"),
        ("x", "", ["rules", "generate", "--profile", "day9"], 2, "day9"),
    ],
)
def test_wrong_inputs_give_the_documented_code_and_a_way_out(
    project: Path, run, file: str, text: str, command: list[str], code: int, words: str
) -> None:
    break_file(project, file, text)
    done = run(*command)
    said = done.stdout + done.stderr
    assert (done.returncode, words in said) == (code, True), said
    assert "Traceback" not in said


@pytest.fixture
def published(project: Path, run) -> Path:
    """The project with its prompt bumped and live."""
    assert run("bump").returncode == 0
    assert run("publish", "--all").returncode == 0
    return project


def test_a_server_that_is_down_is_exit_4(published: Path, run) -> None:
    done = run("warm", "--server", "http://127.0.0.1:1")
    assert done.returncode == 4
    assert "does not answer" in done.stdout


@pytest.mark.parametrize("words", [("warm",), ("audit", "probe")])
def test_an_address_without_http_is_a_usage_error(published: Path, run, words) -> None:
    done = run(*words, "--server", "127.0.0.1:8000")
    assert done.returncode == 2
    assert done.stderr.strip() == "error: no address of a server\n  hint: give http://HOST:PORT"


@pytest.mark.parametrize(
    "words",
    [
        ("show", "support@" + "9" * 5000),
        ("render", "support@" + "9" * 5000),
        ("publish", "support@" + "9" * 5000),
        ("diff", "support", "9" * 5000),
    ],
    ids=lambda words: words[0],
)
def test_a_version_of_very_many_digits_is_a_usage_error(published: Path, run, words) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert len(done.stderr) < 500


def test_a_tokenizer_that_does_not_match_the_lock_is_exit_5(
    published: Path, tokenizer_dir: Path, run
) -> None:
    for file in tokenizer_dir.iterdir():
        (published / "other").mkdir(exist_ok=True)
        (published / "other" / file.name).write_bytes(file.read_bytes())
    with (published / "other" / "chat_template.jinja").open("a") as template:
        template.write("!")
    config = published / "prefixctl.yaml"
    config.write_text(config.read_text().replace(str(tokenizer_dir), "other"))
    done = run("warm", "--server", "http://127.0.0.1:1")
    assert done.returncode == 5
    assert "bump --check" in done.stdout
    assert run("bump", "--check").returncode == 5


class FakeServer(BaseHTTPRequestHandler):
    """A double of a vLLM server that tokenises every request to the tokens it is given."""

    model = "tiny-model"
    tokens: list[int] = []  # noqa: RUF012

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer('vllm:num_requests_running{engine="0"} 0.0\n')
        else:
            self._answer({"data": [{"id": self.model}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"tokens": self.tokens})

    def _answer(self, body: dict | str) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def fake_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_with_another_model_is_exit_5(published: Path, fake_server: str, run) -> None:
    done = run("warm", "--server", fake_server)
    assert done.returncode == 5
    assert "tokens differ from target 'tiny'" in done.stdout


def test_a_server_that_serves_another_name_is_exit_5(
    published: Path, fake_server: str, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeServer, "model", "other")
    done = run("warm", "--server", fake_server)
    assert done.returncode == 5
    assert "serves other, not 'tiny-model'" in done.stdout


def test_a_taken_port_is_exit_4(project: Path) -> None:
    config = project / "prefixctl.yaml"
    config.write_text(config.read_text().replace("block_size: 16", "block_size: 32"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code = (
            "import importlib.util, sys\n"
            "importlib.util.find_spec = lambda name: object()\n"
            f"sys.argv = ['prefixctl', 'serve', 'm', '--port', '{port}']\n"
            "from prefixctl.cli.main import run\n"
            "run()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False
        )
    assert done.returncode == 4
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr


def test_serve_print_is_a_command_line(run) -> None:
    line = run("serve", "tiny", "--print").stdout
    assert "-m vllm.entrypoints.openai.api_server --model tiny-model" in line
    assert "--block-size 16" in line
    parsed = json.loads(run("serve", "tiny", "--print", "--format", "json").stdout)
    assert parsed["arguments"][-1] and parsed["environment"]["VLLM_NO_USAGE_STATS"] == "1"


def test_what_is_there_but_cannot_be_read_is_never_a_clean_check(published: Path, run) -> None:
    assert run("bump", "--check").returncode == 0
    folder = published / PROMPT
    (folder / "prompt.yaml").rename(folder / "kept.yaml")
    assert run("bump", "--check").returncode == 3, "no prompt is left"
    (folder / "prompt.yaml").symlink_to("nowhere.yaml")
    done = run("bump", "--check")
    assert (done.returncode, "a link that leads nowhere" in done.stderr) == (3, True)
    (folder / "prompt.yaml").unlink()
    (folder / "prompt.yaml").symlink_to("prompt.yaml")
    assert run("bump", "--check").returncode == 3
    (folder / "prompt.yaml").unlink()
    (folder / "kept.yaml").rename(folder / "prompt.yaml")
    folder.rename(published / "elsewhere")
    folder.symlink_to(published / "elsewhere", target_is_directory=True)
    assert run("bump", "--check").returncode == 0
    (published / "elsewhere" / "system.md").write_text("changed")
    assert run("bump", "--check").returncode == 5, "a linked folder is looked into"
    folder.unlink()
    write_prompt(published / "templates" / "other")
    assert run("bump", "other").returncode == 0
    done = run("bump", "--check")
    assert (done.returncode, "not in the work tree: support" in done.stderr) == (0, True)
    (published / "templates" / "prefixes.lock.yaml").rename(published / "lock.yaml")
    (published / "templates" / "prefixes.lock.yaml").symlink_to("gone.yaml")
    assert run("bump").returncode == 3
    (published / "prefixctl.yaml").unlink()
    (published / "prefixctl.yaml").mkdir()
    assert run("bump", "--check").returncode == 3


@pytest.mark.parametrize("file", ["prefixctl.yaml", f"{PROMPT}/prompt.yaml", f"{PROMPT}/system.md"])
def test_a_pipe_is_no_file(project: Path, run, file: str) -> None:
    (project / file).unlink()
    os.mkfifo(project / file)
    done = run("bump")
    assert (done.returncode, "not a regular file" in done.stderr) == (3, True)


@pytest.mark.parametrize(
    "template",
    [
        "{{ question | nofilter }}",
        "{{ question is notest }}",
        "{{ question | truncate(-5) }}",
        "{{ cycler().next() }}",
        "{{ 10**5000 }}",
        "{{ question + " + " + ".join(["question"] * 4000) + " }}",
        '{{ "\\ud800" }}{{ question }}',
        "{{ question }}{% for a in range(99999) %}"
        "{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ question | center(2000000000) }}",
        "{{ question }}{{ '{:>3000000000}'.format(1) }}",
    ],
)
def test_a_faulty_template_is_bad_input_not_a_bug(project: Path, run, template: str) -> None:
    (project / PROMPT / "user.md.j2").write_text(template)
    done = run("bump")
    assert done.returncode == 3, done.stderr


def test_the_cpu_build_needs_blocks_of_32(
    project: Path, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.32.0")
    done = run("serve", "tiny")
    assert done.returncode == 3
    assert "multiple of 32 tokens, not 16" in done.stderr


def test_a_model_is_served_as_the_only_target(project: Path, run) -> None:
    line = run("serve", "./elsewhere", "--print").stdout
    assert "--model ./elsewhere" in line
    assert "--served-model-name tiny-model" in line
    assert "--block-size 16" in line
    config = project / "prefixctl.yaml"
    config.write_text(config.read_text() + "  other: {model: m}\n")
    assert run("serve", "./elsewhere", "--print").returncode == 2
    assert "--served-model-name m " in run("serve", "m", "--print").stdout


def test_render_prints_the_request_or_the_bytes_of_a_version(published: Path, run) -> None:
    (published / PROMPT / "system.md").write_bytes(b"Other words.\r\n")
    body = json.loads(run("render", "support@live", "--set", "question=Why?").stdout)
    assert body["messages"][-1] == {"role": "user", "content": "Why?"}
    assert body["tools"][0]["function"]["name"] == "order_status"
    assert "Other words" not in body["messages"][0]["content"]
    assert "Other words" in run("render", "support", "--set", "question=x").stdout
    assert run("render", "support@live", "--file", "sistem.md").returncode == 2
    assert run("render", "support", "--set", "question").returncode == 2
    assert run("render", "support").returncode == 3


def printed(run):
    """What `serve` would start."""
    return json.loads(run("serve", "tiny", "--print", "--format", "json").stdout)


def test_serve_hands_the_governing_settings_to_the_engine(project: Path, run, monkeypatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    config = project / "prefixctl.yaml"
    given = config.read_text()
    config.write_text(given + "prefix_cache: {evict: {policy: lru_freq, ttl_hours: null}}\n")
    arguments = printed(run)["arguments"]
    passed = json.loads(arguments[arguments.index("--additional-config") + 1])["prefixctl"]
    assert (passed["policy"], passed["ttl_seconds"]) == ("lru_freq", None)
    assert "prefixctl.vllm_plugin.scheduler.make_scheduler" in arguments
    config.write_text(given + "prefix_cache: {enabled: false}\n")
    assert "--scheduler-cls" not in printed(run)["arguments"]


@pytest.mark.parametrize(
    ("theirs", "named"), [("mine,other", "mine,other,prefixctl"), ("", "prefixctl")]
)
def test_serve_adds_itself_to_the_plugins_that_are_allowed(
    project: Path, run, monkeypatch, theirs: str, named: str
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", theirs)
    assert printed(run)["environment"]["VLLM_PLUGINS"] == named


def test_serve_names_all_plugins_where_nobody_has_chosen(project: Path, run, monkeypatch) -> None:
    """The variable is an allow-list: setting it must not switch off what would have loaded."""
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    plugin = importlib.metadata.EntryPoint("someones", "x:y", "vllm.general_plugins")
    real = importlib.metadata.entry_points
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: [plugin] if group == plugin.group else real(group=group),
    )
    assert "someones" in printed(run)["environment"]["VLLM_PLUGINS"].split(",")


def test_an_interrupted_command_is_exit_130(project: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "prefixctl", "audit", "probe", "--server", url],
            cwd=project,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        connection.close()
    assert process.returncode == 130
    assert "Traceback" not in said


def test_a_bug_is_exit_70_and_says_so(project: Path) -> None:
    code = (
        "import sys, prefixctl.config\n"
        "def broken(*_, **__): raise ZeroDivisionError('boom')\n"
        "prefixctl.config.load_config = broken\n"
        "sys.argv = ['prefixctl', 'bump']\n"
        "from prefixctl.cli.main import run\n"
        "run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 70
    assert "boom" in done.stderr
    assert "a bug in prefixctl" in done.stderr


def test_no_output_holds_the_secret(
    published: Path, fake_server: str, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFIXCTL_SECRET", SECRET)
    commands = [
        ["warm", "--tenant", "a", "--server", fake_server],
        ["warm", "--tenant", "a", "--server", fake_server, "--format", "json"],
        ["audit", "probe", "--server", fake_server],
        ["audit", "probe", "--server", "http://127.0.0.1:1", "--format", "json"],
        ["serve", "tiny", "--print"],
        ["show", "support"],
        ["history", "support", "--format", "json"],
    ]
    for command in commands:
        done = run(*command)
        assert SECRET not in done.stdout + done.stderr


def test_a_short_secret_is_refused_without_being_shown(
    published: Path, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFIXCTL_SECRET", "too-short")
    done = run("warm", "--tenant", "a", "--server", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert "shorter than 16 bytes" in done.stderr
    assert "too-short" not in done.stderr


def test_a_tenant_needs_a_secret(published: Path, run) -> None:
    done = run("warm", "--tenant", "a", "--server", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert "tenancy.secret_file" in done.stderr


def test_the_fake_server_is_used_as_the_client_expects(
    published: Path, fake_server: str, run
) -> None:
    """The double's own check: with the right tokens the client goes on to the completion."""
    config = load_config(published / "prefixctl.yaml")
    target = load_target(config, "tiny")
    from prefixctl.registry.publish import load_live

    prompt = load_live(config)[0].prompt
    FakeServer.tokens = target.tokenizer.token_ids(render(prompt, probe_values(prompt, 0)))
    try:
        done = run("warm", "--server", fake_server)
    finally:
        FakeServer.tokens = []
    assert done.returncode == 4
    assert "before it reported its usage" in done.stdout
