"""The sandbox: whatever a template does, a typed outcome within 2 s and 500 MB."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import date, datetime
from pathlib import Path

import pytest

import prefixctl.prompts.sandbox as module
from prefixctl.errors import PrefixctlError
from prefixctl.lint.chat import confirm
from prefixctl.prompts.sandbox import (
    Dialect,
    FailureKind,
    Job,
    Limits,
    Outcome,
    Render,
    Returning,
    Sandbox,
)

MIB = 1024 * 1024
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
TALK = Render(values={"messages": [{"role": "user", "content": "hello"}]})
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"

HOSTILE = {
    "endless loop": (ENDLESS, {"time"}),
    "one gigabyte in one text": ("{{ 'a' * 10**9 }}", {"memory"}),
    "gigabytes bit by bit": (
        "{% set ns = namespace(a='x' * 1000) %}"
        "{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a }}",
        {"memory", "time"},
    ),
    "gigabytes in lists": (
        "{% set ns = namespace(a=[0]) %}"
        "{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
        {"memory", "time"},
    ),
    "a wide format": ("{{ '%1000000000d' % 1 }}", {"memory"}),
    "a walk to builtins": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", {"forbidden"}),
    "a walk by a global": (
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        {"forbidden"},
    ),
    "a walk by a format": ("{{ '{0.__class__.__mro__}'.format(1).x.y }}", {"forbidden", "failed"}),
    "an include of a file": ("{% include '../../etc/passwd' %}", {"include"}),
    "an absolute include": ("{% include '/etc/passwd' %}", {"include"}),
    "an import": ("{% from '../../etc/passwd' import x %}", {"include"}),
    "a change of its values": ("{% set _ = messages.append(1) %}", {"forbidden"}),
    "endless recursion": (
        "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
        {"recursion"},
    ),
    "deep nesting": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", {"recursion"}),
    "printing 1 GB": (
        "{% for i in range(99999) %}{{ 'x' * 10240 }}{% endfor %}",
        {"output"},
    ),
    "printing 1 GB in a macro": (
        "{% macro m() %}{% for i in range(99999) %}{{ 'x' * 10240 }}{% endfor %}{% endmacro %}"
        "{{ m() }}",
        {"memory", "output"},
    ),
    "a huge range": ("{% for i in range(10 ** 12) %}x{% endfor %}", {"failed"}),
    "a huge power": ("{{ 7 ** (10 ** 8) }}", {"time", "failed"}),
    "a broken template": ("{% if %}", {"syntax"}),
    "a refusal": ("{{ raise_exception('no') }}", {"refused"}),
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def _peak_bytes(pid: int) -> int:
    """The most memory that a process had resident since it was started."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_templates_end_within_two_seconds_and_500_mb(sandbox, monkeypatch, case):
    peaks = []

    def measured_kill(worker) -> None:
        peaks.append(_peak_bytes(worker.pid))
        worker._finalizer()

    monkeypatch.setattr(module._Worker, "kill", measured_kill)
    source, kinds = HOSTILE[case]
    assert sandbox.render(Job(source=CHAT, renders=[TALK]))[0].text == "<user>hello"
    worker = sandbox._worker
    started = time.monotonic()
    outcomes = sandbox.render(Job(source=source, renders=[TALK] * 3))
    seconds = time.monotonic() - started
    if worker.is_alive:
        peaks.append(_peak_bytes(worker.pid))
    assert len(outcomes) == 3
    assert all(o.text is None and o.failure and o.failure.message for o in outcomes)
    assert {o.failure.kind.value for o in outcomes} <= kinds
    assert seconds < 2
    if sys.platform == "linux":
        assert 0 < max(peaks) < 500 * MIB


def test_a_thousand_renders_are_fast_and_share_one_process(sandbox):
    sandbox.render(Job(source=CHAT, renders=[TALK]))
    pid = sandbox._worker.pid
    started = time.monotonic()
    outcomes = sandbox.render(Job(source=CHAT, renders=[TALK] * 1000))
    assert time.monotonic() - started < 1.4
    assert {o.text for o in outcomes} == {"<user>hello"}
    assert sandbox._worker.pid == pid


def test_a_killed_worker_is_replaced(sandbox):
    sandbox.render(Job(source=CHAT, renders=[TALK]))
    os.kill(sandbox._worker.pid, signal.SIGKILL)
    (outcome,) = sandbox.render(Job(source=CHAT, renders=[TALK]))
    assert outcome == Outcome(text="<user>hello") or outcome.failure.kind is FailureKind.CRASHED
    assert sandbox.render(Job(source=CHAT, renders=[TALK]))[0].text == "<user>hello"


def test_renders_ahead_of_the_hostile_one_are_kept():
    source = "{% for i in range(n) %}{% for j in range(n) %}{% endfor %}{% endfor %}done"
    job = Job(source=source, renders=[Render(values={"n": n}) for n in (1, 99_999, 1)])
    with Sandbox(Limits(seconds=0.4)) as own:
        first, second, third = own.render(job)
    assert first.text == "done"
    assert second.failure is not None
    assert second.failure.kind is FailureKind.TIME
    assert third == second


def test_the_worker_can_open_no_file_and_sees_no_environment(sandbox, monkeypatch):
    monkeypatch.setenv("PLANTED", "secret")
    sandbox.close()
    sandbox.render(Job(source=CHAT, renders=[TALK]))
    process = Path(f"/proc/{sandbox._worker.pid}")
    if not process.exists():
        pytest.skip("no /proc")
    assert "PLANTED" not in (process / "environ").read_text()
    limits = (process / "limits").read_text()
    for name, value in [("Max open files", "3"), ("Max file size", "0"), ("Max processes", "0")]:
        line = next(line for line in limits.splitlines() if line.startswith(name))
        assert line.split("  ")[-1] != "unlimited"
        assert value in line.split()


def test_the_worker_ends_with_its_parent():
    code = (
        "from prefixctl.prompts.sandbox import *\n"
        "import os\n"
        "s = Sandbox(); s.render(Job(source='x', renders=[Render(values={})]))\n"
        "print(s._worker.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid, deadline = int(done.stdout), time.monotonic() + 5
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{pid}").exists()


def test_clock_and_random_source_are_given(sandbox):
    source = "{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ range(10**5) | random }}"
    now = datetime(2031, 2, 3, 4, 5, 6)
    renders = [Render(values={}, now=now, seed=s) for s in (1, 1, 2)]
    first, same, other = sandbox.render(Job(source=source, renders=renders))
    assert first.text.startswith("2031-02-03 04:05:06 ")
    assert first == same
    assert first.text != other.text
    assert first.clock_formats == ("%Y-%m-%d %H:%M:%S",)


def test_values_reach_the_template_as_they_are(sandbox):
    values = {
        "day": date(2031, 2, 3),
        "at": datetime(2031, 2, 3, 4, 5),
        "call": Returning(result={"name": ["x"]}),
        "odd": {"$": "dict", "value": 1},
        "text": "\ud800 ünï",
        "none": None,
    }
    source = "{{ day.year }} {{ at.minute }} {{ call(1, a=2).name[0] }} {{ odd['$'] }}{{ text }}"
    (outcome,) = sandbox.render(Job(source=source, renders=[Render(values=values)]))
    assert outcome.text == "2031 5 x dict\ud800 ünï"


def test_only_given_files_are_included(sandbox):
    job = Job(
        source="{% include 'a/b.jinja' %}\n",
        renders=[Render(values={"x": "1"})],
        dialect=Dialect.PROMPT,
        files={"a/b.jinja": "in {{ x }}"},
    )
    assert sandbox.render(job)[0].text == "in 1\n"
    (again,) = sandbox.render(Job(source=job.source, renders=job.renders, dialect=job.dialect))
    assert again.failure.kind is FailureKind.INCLUDE


def test_failures_name_their_line(sandbox):
    for source, kind in [("a\n{% if %}", "syntax"), ("a\n{{ x.y.z }}", "failed")]:
        (outcome,) = sandbox.render(Job(source=source, renders=[Render(values={})]))
        assert (outcome.failure.kind.value, outcome.failure.line) == (kind, 2)


def test_threads_wait_for_one_another(sandbox):
    texts = []

    def work(name: str) -> None:
        job = Job(source="{{ x }}", renders=[Render(values={"x": name})] * 20)
        texts.append({o.text for o in sandbox.render(job)} == {name})

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [True] * 8


def test_names_of_any_script_are_rendered(sandbox) -> None:
    """Their normal form needs a module that cannot be loaded once files are given up."""
    job = Job(source="{{ 问题 }}", renders=[Render(values={"问题": "何时发货？"})])
    (outcome,) = sandbox.render(job)
    assert outcome.text == "何时发货？"


SHADOWS = ("random.py", "jinja2.py", "types.py", "prefixctl/__init__.py", "sitecustomize.py")
LINT = "from prefixctl.cli.main import run; run()"


def _lint_in(folder):
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "chat.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | random }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    (folder / "prompts" / "greet.jinja").write_text("Hello {{ name }}, today is {{ now() }}.")
    asked = ["lint", ".", "--sample", "--format", "json"]
    # As the console script does it: the working directory is not on the parent's import path.
    command = [sys.executable, "-P", "-c", LINT, *asked]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_linted_folder_is_data_and_never_code(tmp_path):
    clean, hostile = tmp_path / "clean", tmp_path / "hostile"
    for name in SHADOWS:
        file = hostile / name
        file.parent.mkdir(parents=True, exist_ok=True)
        code = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + '\\n')\nraise SystemExit(9)"
        file.write_text(code)
    expected, done = _lint_in(clean), _lint_in(hostile)
    assert not (tmp_path / "ran").exists()
    assert '"samples"' in expected.stdout
    assert (done.stdout, done.returncode) == (expected.stdout, expected.returncode)


def test_the_working_directory_is_not_on_the_import_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", ["", ".", *sys.path])
    for name in ("random.py", "jinja2.py", "types.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    home, others = module.import_path()
    assert str(tmp_path) not in {home, *others}
    assert {"", "."}.isdisjoint(others)
    with Sandbox() as own:
        (outcome,) = own.render(Job(source="{{ [7] | random }}", renders=[Render(values={})]))
    assert outcome.text == "7"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("code", ["import sys; sys.exit('no jinja2 here')", "import no_such_thing"])
def test_why_a_worker_does_not_start_is_said(monkeypatch, code):
    monkeypatch.setattr(module, "SERVE", code)
    said = "no jinja2 here|No module named 'no_such_thing'"
    with Sandbox() as own, pytest.raises(PrefixctlError, match=said) as caught:
        own.render(Job(source=CHAT, renders=[TALK]))
    assert caught.value.hint


def test_a_python_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(module.sys, "executable", "/no/such/python")
    with Sandbox() as own, pytest.raises(PrefixctlError, match="/no/such/python"):
        own.render(Job(source=CHAT, renders=[TALK]))


def test_without_a_worker_lint_says_so_and_weakens_no_finding(monkeypatch):
    monkeypatch.setattr(module, "SERVE", "import no_such_thing")
    own = Sandbox()
    monkeypatch.setattr(confirm, "shared_sandbox", lambda: own)
    with pytest.raises(PrefixctlError, match="No module named 'no_such_thing'"):
        confirm._measured(CHAT + "{# measured nowhere else #}")
