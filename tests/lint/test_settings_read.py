"""Readers of launch settings: what is started, with which flags, and exactly where they stand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixctl.errors import InputError
from prefixctl.sources.settings.launch import Engine, Launch
from prefixctl.sources.settings.read import parse_settings, read_settings
from prefixctl.sources.settings.text import SourceFile


def launches(text: str, name: str = "run.sh") -> tuple[Launch, ...]:
    """The launches of a text; the place of every flag is checked on the way."""
    file = SourceFile.of(name, text)
    found = parse_settings(file).launches
    for launch in found:
        for flag in launch.flags:
            at = file.line(flag.location.line)[flag.location.column - 1 :]
            written = flag.name.lstrip("-").replace("-", "")
            plain = at.lstrip("-'\"").replace("_", "").replace("-", "").lower()
            assert flag.implied_by or plain.startswith(
                (written.lower(), written.lower().removeprefix("no"))
            ), (flag, at)
    return found


def one(text: str, name: str = "run.sh") -> Launch:
    found = launches(text, name)
    assert len(found) == 1
    return found[0]


def test_a_script_with_variables_an_array_and_continued_lines():
    launch = one(
        "#!/bin/bash\n# vllm serve not-this --block-size 1\n"
        "export PYTHONHASHSEED=0\nMODEL=acme/chat\nARGS=(--block-size 64\n  --max_model_len=16k)\n"
        'CUDA_VISIBLE_DEVICES=0 nohup vllm serve "$MODEL" \\\n  "${ARGS[@]}" '
        '--speculative-config \'{"method": "eagle"}\' > log.txt 2>&1 &\n'
    )
    assert (launch.engine, launch.model, launch.is_open) == (Engine.VLLM, "acme/chat", False)
    assert launch.value("--max-model-len") == "16k"
    assert launch.flag("--max-model-len").location.line == 6
    assert launch.value("--speculative-config") == '{"method": "eagle"}'
    assert {v.name: v.value for v in launch.environment} == {
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "0",
    }


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("python3 -m vllm.entrypoints.openai.api_server --model m", Engine.VLLM),
        ("exec /opt/venv/bin/vllm serve m", Engine.VLLM),
        ("python -m sglang.launch_server --model-path m", Engine.SGLANG),
        ('bash -c "cd /app && vllm serve m"', Engine.VLLM),
        ("if true; then vllm serve m; fi", Engine.VLLM),
        ("docker run --rm vllm/vllm-openai:v1 --model m", Engine.VLLM),
        ("podman run --name vllm lmsysorg/sglang python3 -m sglang.launch_server", Engine.SGLANG),
    ],
)
def test_ways_to_start(text, engine):
    assert one(text).engine is engine


@pytest.mark.parametrize(
    "text",
    [
        "pip install vllm",
        "echo vllm serve m",
        "# vllm serve m",
        "pkill -f 'vllm serve m'",
        "vllm bench serve --model m",
        "cat <<EOF\nvllm serve m\nEOF\n",
        "docker run --name vllm postgres:16",
    ],
)
def test_what_starts_nothing(text):
    assert launches(text) == ()


def test_what_the_file_does_not_give_stays_open():
    assert one("vllm serve m $EXTRA").is_open
    assert one('vllm serve m "$@"').is_open
    assert one("vllm serve m --config server.yaml").is_open
    flag = one("vllm serve m --block-size ${SIZE:-16}").flag("--block-size")
    assert not flag.known
    twice = one("A=1\nA=2\nvllm serve m --block-size $A")
    assert twice.value("--block-size") is None


def test_docker_run_with_environment():
    launch = one("docker run -e HF_TOKEN=abc --env=A=b vllm/vllm-openai --model m --api-key k")
    assert {v.name: v.value for v in launch.environment} == {"HF_TOKEN": "abc", "A": "b"}
    assert launch.image == "vllm/vllm-openai"
    assert launch.value("--api-key") == "k"


def test_a_dockerfile_in_both_forms_with_stages():
    text = (
        "FROM vllm/vllm-openai:v1 AS base\nENV PYTHONHASHSEED=0 \\\n    A=b\n"
        'CMD ["--model", "m", \\\n  "--block-size=${SIZE}", "--no-enable-prefix-caching"]\n'
        "FROM base AS other\nENTRYPOINT vllm serve m2 --block-size 32\n"
    )
    base, other = launches(text, "Dockerfile")
    assert (base.name, base.model, other.model) == ("base", "m", "m2")
    assert base.flag("--no-enable-prefix-caching").location.line == 5
    assert not base.flag("--block-size").known
    assert other.variable("PYTHONHASHSEED").value == "0"
    assert other.flag("--block-size").location.column == 26


COMPOSE = """\
services:
  a:
    image: vllm/vllm-openai:latest
    command: >
      --model m
      --block-size 16
    environment:
      PYTHONHASHSEED: "0"
    deploy: {replicas: 3}
  b:
    image: lmsysorg/sglang
    entrypoint: python3 -m sglang.launch_server
    command: ["--model-path", m, "--page-size", "64"]
    environment: ["A=b", "TOKEN=${TOKEN}"]
  db: {image: postgres, command: [x]}
"""


def test_a_compose_file():
    a, b = launches(COMPOSE, "compose.yaml")
    assert (a.engine, a.name, a.replicas, a.value("--block-size")) == (Engine.VLLM, "a", 3, "16")
    assert (a.flag("--block-size").location.line, b.engine) == (6, Engine.SGLANG)
    assert b.value("--page-size") == "64"
    assert b.variable("TOKEN").value is None


MANIFEST = """\
apiVersion: v1
kind: Service
---
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 4
  template:
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v1
          command: ["/bin/sh", "-c"]
          args:
            - |
              export X=1
              vllm serve $(MODEL) --trust-remote-code \\
                --kv-cache-dtype fp8
          env:
            - {name: MODEL, value: m}
            - name: HF_TOKEN
              valueFrom: {secretKeyRef: {name: s, key: k}}
        - name: sidecar
          image: busybox
          args: [sleep, "1"]
"""


def test_a_kubernetes_manifest_of_two_documents():
    launch = one(MANIFEST, "deploy.yaml")
    assert (launch.name, launch.replicas, launch.model) == ("server", 4, "m")
    assert launch.flag("--kv-cache-dtype").location.line == 18
    assert launch.variable("HF_TOKEN").value is None


VALUES = """\
servingEngineSpec:
  modelSpec:
    - name: llama
      repository: vllm/vllm-openai
      tag: latest
      modelURL: acme/chat
      replicaCount: 2
      vllmConfig:
        maxModelLen: 4096
        extraArgs: ["--block-size", "32"]
      env: [{name: A, value: b}]
"""


def test_values_of_the_production_stack():
    launch = one(VALUES, "values.yaml")
    assert (launch.model, launch.replicas, launch.value("--block-size")) == ("acme/chat", 2, "32")
    assert launch.value("--max-model-len") == "4096"
    off = launch.flag("--no-enable-prefix-caching")
    assert "enablePrefixCaching" in off.implied_by
    false = one(VALUES.replace("maxModelLen: 4096", "enablePrefixCaching: false"), "values.yaml")
    assert false.flag("--no-enable-prefix-caching").implied_by
    on = one(VALUES.replace("maxModelLen: 4096", "enablePrefixCaching: true"), "values.yaml")
    assert on.flag("--no-enable-prefix-caching") is None


def test_generic_values():
    text = "vllm:\n  extraArgs: {max-model-len: 4096, enable-prefix-caching: false}\n"
    launch = one(text, "values.yaml")
    assert launch.value("--max-model-len") == "4096"
    assert launch.flag("--no-enable-prefix-caching") is not None
    listed = one(
        "engine:\n  image: {repository: vllm/vllm-openai}\n  args: [--model, m]\n", "v.yml"
    )
    assert listed.model == "m"


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends_and_wide_characters(end):
    text = end.join(
        [
            "services:",
            "  客服:",
            "    image: vllm/vllm-openai",
            "    command: '--model 模型 --block-size 8'",
        ]
    )
    launch = one(text, "compose.yaml")
    assert (launch.flag("--block-size").location.line, launch.model) == (4, "模型")
    assert launch.flag("--block-size").location.column == 26


def test_hostile_yaml_ends_in_an_error(tmp_path):
    bomb = "a: &a [x, x]\n" + "".join(f"k{i}: &k{i} [*a, *a]\n" for i in range(2000))
    (tmp_path / "bomb.yaml").write_text(bomb)
    (tmp_path / "deep.yaml").write_text("[" * 20_000)
    (tmp_path / "loop.yaml").write_text("a: &a\n  b: *a\n  args: [vllm, serve, m]\n")
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    for name in ("bomb", "deep", "bytes"):
        with pytest.raises(InputError):
            read_settings(tmp_path / f"{name}.yaml")
    assert len(read_settings(tmp_path / "loop.yaml").launches) == 1


def test_a_helm_template_says_what_to_give_instead():
    text = "kind: X\nspec:\n  {{- if .Values.a }}\n  args: [--a]\n"
    with pytest.raises(InputError) as caught:
        launches(text, "deployment.yaml")
    assert "values file" in (caught.value.hint or "")


def test_an_error_in_a_later_document_has_its_line():
    with pytest.raises(InputError) as caught:
        launches("a: 1\n---\nb: 2\nb: 3\n", "x.yaml")
    assert caught.value.line == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", "$(" * 200_000),
        ("run.sh", "docker run " + "vllm" * 50_000 + "!"),
        ("run.sh", "A=" * 100_000 + "\nvllm serve $A"),
        ("run.sh", "'" + "x" * 300_000),
        ("run.sh", 'bash -c "' * 5_000),
        ("c.yaml", 'command: "' + " " * 300_000 + 'vllm serve m"'),
        ("c.yaml", "command: a" + " " * 300_000 + "b"),
        ("Dockerfile", "FROM x\nCMD a \\\n" * 5_000),
    ],
    ids=["expansions", "image", "assignments", "quote", "shells", "quoted", "plain", "continued"],
)
def test_hostile_text_ends(name, text):
    assert len(parse_settings(SourceFile.of(name, text)).launches) <= 1


def test_a_folded_string_keeps_its_places():
    head = "services:\n  a:\n    image: vllm/vllm-openai\n"
    text = f"{head}    command: --model m  \n      --block-size 8\n"
    assert one(text, "compose.yaml").flag("--block-size").location.line == 5
    quoted = text.replace("--model m  ", '"--model m  ').replace("size 8", 'size 8"')
    flag = one(quoted, "compose.yaml").flag("--block-size")
    assert (flag.location.line, flag.location.column) == (5, 7)


NAMES = ["a.sh", "a.yaml", "Dockerfile"]
PARTS = [
    *(
        "vllm serve m ",
        "--block-size ",
        "16",
        "'",
        '"',
        "\\",
        "\n",
        "\r\n",
        "$A",
        "${",
        "$(",
        ")",
        "`",
    ),
    *(
        "#",
        "A=(",
        "A=1",
        "<<E\n",
        ">",
        "&",
        " ",
        "docker run vllm/vllm-openai ",
        "sh -c ",
        "[",
        "]",
    ),
    *("{", "}", ": ", "- ", "|", "command", "args", "image: vllm", "&a", "*a", "CMD ", "ENV "),
    *("FROM vllm\n", ",", "---\n", "é", "\t"),
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(PARTS), max_size=25), st.sampled_from(["a.sh", "a.yaml", "Dockerfile"])
)
def test_any_text_is_read_or_refused_and_every_place_is_in_the_file(parts, name):
    file = SourceFile.of(name, "".join(parts))
    try:
        found = parse_settings(file).launches
    except InputError:
        return
    for launch in found:
        for flag in launch.flags:
            assert 1 <= flag.location.column <= len(file.line(flag.location.line)) + 1
