from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from prefixctl.config import Config, load_config
from prefixctl.core.keys import block_hashes
from prefixctl.core.ports import ChatRequest
from prefixctl.engine import launch
from prefixctl.engine.events import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    decode_batch,
    external_hash,
)
from prefixctl.engine.hashing import hash_function
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import (
    ExitCode,
    InputError,
    PortInUseError,
    ServerError,
    UnreachableError,
    UsageError,
)
from prefixctl.ids import BlockHash, Salt

REQUEST = ChatRequest(messages=({"role": "user", "content": "hi"},))
METRICS = (
    'vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="0",'
    'prefix_caching_hash_algo="sha256_cbor"} 1.0\n'
    'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
    'vllm:num_requests_running{engine="1",model_name="m"} 0.0\n'
)


def engine(answers: dict[str, Any], seen: list[httpx.Request] | None = None) -> HttpEngine:
    def handle(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        answer = answers[request.url.path]
        if isinstance(answer, httpx.Response):
            return answer
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(
            200, **({"text": answer} if isinstance(answer, str) else {"json": answer})
        )

    return HttpEngine("http://server/v1/", transport=httpx.MockTransport(handle))


def stream(*events: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"


MODELS = {"data": [{"id": "m", "max_model_len": 4096}]}


def test_a_streamed_answer_gives_usage_and_time_to_first_token() -> None:
    seen: list[httpx.Request] = []
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}}
    answers = {
        "/v1/models": MODELS,
        "/v1/chat/completions": stream({"choices": []}, {"choices": [], "usage": usage}),
    }
    use = engine(answers, seen).complete(REQUEST, salt=Salt("s"), rank=1).use
    assert (use.prompt_tokens, use.cached_tokens) == (100, 64)
    assert use.ttft_seconds is not None
    body = json.loads(seen[-1].content)
    assert body["cache_salt"] == "s"
    assert body["model"] == "m"
    assert seen[-1].headers["X-data-parallel-rank"] == "1"
    assert "tools" not in body


@pytest.mark.parametrize(
    ("details", "cached"), [(None, None), ({"cached_tokens": 0}, 0), ({}, None)]
)
def test_null_is_not_zero(details: dict[str, int] | None, cached: int | None) -> None:
    usage = {"prompt_tokens": 9, "prompt_tokens_details": details}
    answers = {"/v1/models": MODELS, "/v1/chat/completions": stream({"usage": usage})}
    assert engine(answers).complete(REQUEST).use.cached_tokens is cached


def test_tools_are_rendered_but_never_called() -> None:
    seen: list[httpx.Request] = []
    answers = {"/v1/models": MODELS, "/tokenize": {"tokens": [1, 2]}}
    request = ChatRequest(messages=REQUEST.messages, tools=({"function": {"name": "f"}},))
    assert engine(answers, seen).tokenize(request) == [1, 2]
    assert json.loads(seen[-1].content)["tool_choice"] == "none"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (httpx.ConnectError("refused"), UnreachableError, "does not answer: refused"),
        (httpx.ReadTimeout(""), UnreachableError, "ReadTimeout"),
        (
            httpx.Response(400, json={"error": {"message": "bad salt"}}),
            ServerError,
            "400: bad salt",
        ),
        (httpx.Response(500, text="boom"), ServerError, "500: boom"),
        (stream({"error": "died"}), ServerError, "broke off: died"),
        (stream({"choices": []}), ServerError, "before it reported its usage"),
    ],
)
def test_what_goes_wrong_is_said(answer: object, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        engine({"/v1/models": MODELS, "/v1/chat/completions": answer}).complete(REQUEST)
    assert caught.value.exit_code is ExitCode.UNREACHABLE  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/v1/models", "<html>log in</html>", "not JSON"),
        ("/v1/models", [], "not an object"),
        ("/v1/models", {"data": [{}]}, "no models in it"),
        ("/v1/models", {"data": []}, "serves no model"),
        ("/tokenize", {"count": 3}, "no tokens in it"),
        ("/tokenize", {"tokens": ["a"]}, "no tokens in it"),
        ("/v1/chat/completions", "data: {broken\n\n", "a broken event"),
        ("/v1/chat/completions", stream({"usage": {"prompt_tokens": None}}), "no usage in it"),
        (
            "/v1/chat/completions",
            stream({"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 5}}}),
            "5 cached of 1",
        ),
    ],
)
def test_an_answer_of_another_kind_is_a_server_error(path: str, answer: Any, words: str) -> None:
    asked = engine({"/v1/models": MODELS, path: answer})
    with pytest.raises(ServerError, match=words):
        asked.tokenize(REQUEST) if path == "/tokenize" else asked.complete(REQUEST)


def test_a_server_that_echoes_the_salt_does_not_reveal_it() -> None:
    answer = httpx.Response(400, json={"error": {"message": "bad salt 'my-salt'" + "x" * 999}})
    with pytest.raises(ServerError) as caught:
        asked = engine({"/v1/models": MODELS, "/v1/chat/completions": answer})
        asked.complete(REQUEST, salt=Salt("my-salt"))
    assert "my-salt" not in str(caught.value)
    assert "***" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_server_says_what_it_is() -> None:
    facts = engine({"/v1/models": MODELS, "/metrics": METRICS}).facts()
    assert facts.ranks == 2
    assert facts.block_size == 32
    assert facts.prefix_caching is True
    assert facts.hash_algorithm == "sha256_cbor"
    assert facts.max_model_len == 4096


def test_metrics_of_another_program_are_an_error() -> None:
    with pytest.raises(ServerError, match="ranks cannot be counted"):
        engine({"/v1/models": MODELS, "/metrics": "<html>"}).facts()


def test_a_password_in_an_address_is_not_shown() -> None:
    asked = HttpEngine("http://user:PASSWORD@127.0.0.1:1?token=TOKEN")
    with pytest.raises(UnreachableError) as caught:
        asked.facts()
    assert "PASSWORD" not in f"{caught.value} {asked.url}"
    assert "TOKEN" not in f"{caught.value} {asked.url}"


def test_an_answer_that_never_ends_is_cut_off() -> None:
    def drip() -> Iterator[bytes]:
        for _ in range(1000):
            time.sleep(0.01)
            yield b": ping\n\n"

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=drip())

    asked = HttpEngine(
        "http://s", model="m", timeout_seconds=0.1, transport=httpx.MockTransport(handle)
    )
    with pytest.raises(ServerError, match="did not end within"):
        asked.complete(REQUEST)


@pytest.mark.parametrize("address", ["http://[::bad", "a:1", "//a:1", "http://", "http://a:x"])
def test_an_address_that_is_none(address) -> None:
    with pytest.raises(UsageError, match="no address of a server"):
        HttpEngine(address)
    with pytest.raises(UsageError, match="cannot be sent"):
        HttpEngine("http://a", api_key="\u2026")


def config(tmp_path: Path, text: str) -> Config:
    (tmp_path / "prefixctl.yaml").write_text(text)
    return load_config(tmp_path / "prefixctl.yaml")


def test_the_serve_command_says_all_that_the_lock_depends_on(tmp_path: Path) -> None:
    settings = config(
        tmp_path,
        "targets:\n  t:\n    model: org/m\n    revision: r1\n    tokenizer: tok\n"
        "    chat_template: ct.jinja\n    chat_template_kwargs: {date_string: x}\n"
        "    block_size: 32\n    hash_seed: '7'\n    kv_dtype: fp8\n"
        "server: {kv_cache_gib: 2, data_parallel_size: 2, kv_events_endpoint: 'tcp://*:5557'}\n",
    )
    command = launch.serve_command(settings, "org/m", target=settings.targets["t"], port=9)
    line = " ".join(command.arguments)
    for part in (
        "--model org/m",
        "--port 9",
        "--block-size 32",
        "--prefix-caching-hash-algo sha256_cbor",
        "--kv-cache-dtype fp8",
        "--revision r1",
        f"--tokenizer {tmp_path / 'tok'}",
        f"--chat-template {tmp_path / 'ct.jinja'}",
        '--default-chat-template-kwargs {"date_string": "x"}',
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--data-parallel-size 2",
        "--kv-cache-memory-bytes 2147483648",
        '"endpoint": "tcp://*:5557"',
    ):
        assert part in line
    assert command.environment["PYTHONHASHSEED"] == "7"
    assert command.url == "http://127.0.0.1:9"


def test_a_disabled_cache_is_served_disabled(tmp_path: Path) -> None:
    settings = config(tmp_path, "prefix_cache: {enabled: false}\n")
    assert "--no-enable-prefix-caching" in launch.serve_command(settings, "m").arguments


def test_a_taken_port_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = launch.serve_command(config(tmp_path, ""), "m", port=port)
        with pytest.raises(PortInUseError, match=f"127.0.0.1:{port}") as caught:
            launch.check_startable(command)
    assert caught.value.exit_code is ExitCode.UNREACHABLE


def test_a_missing_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    command = launch.serve_command(config(tmp_path, ""), "m", port=launch.free_port())
    with pytest.raises(InputError, match="vLLM is not installed"):
        launch.check_startable(command)


STORED = {"type": "BlockStored", "block_hashes": [5], "token_ids": [1, 2], "block_size": 2}


@pytest.mark.parametrize(
    ("raw", "event"),
    [
        (STORED, BlocksStored(hashes=(5,), token_ids=(1, 2), block_size=2)),
        (
            ["BlockStored", [5], None, [1, 2], 2, None],
            BlocksStored(hashes=(5,), token_ids=(1, 2), block_size=2),
        ),
        ({"type": "BlockRemoved", "block_hashes": [b"\x01\x02"]}, BlocksRemoved(hashes=(258,))),
        (["BlockRemoved", [5]], BlocksRemoved(hashes=(5,))),
        ({"type": "AllBlocksCleared"}, AllCleared()),
    ],
)
def test_events_of_both_shapes_are_read(raw: object, event: object) -> None:
    batch = decode_batch([1.0, [raw], 1], 42)
    assert (batch.sequence, batch.rank, batch.events) == (42, 1, (event,))


@pytest.mark.parametrize("payload", [[], [1.0], [1.0, [{"type": "Other"}]], [1.0, [{}]], 5])
def test_an_unknown_event_is_an_error(payload: object) -> None:
    with pytest.raises(ServerError, match="unknown shape"):
        decode_batch(payload, 0)


@pytest.mark.parametrize("name", ["sha256", "sha256_cbor"])
def test_block_hashes_chain(name: str) -> None:
    hashed = hash_function(name)
    chain = block_hashes(list(range(10)), block_size=4, hash_function=hashed)
    assert len(chain) == 2
    assert chain[0] == hashed((hashed("vllm-none-hash"), (0, 1, 2, 3), None))
    assert chain[1] == hashed((chain[0], (4, 5, 6, 7), None))
    salted = block_hashes(list(range(10)), block_size=4, hash_function=hashed, salts={0: Salt("s")})
    assert salted[0] == hashed((hashed("vllm-none-hash"), (0, 1, 2, 3), (("cache_salt", "s"),)))
    late = block_hashes(list(range(10)), block_size=4, hash_function=hashed, salts={1: Salt("s")})
    assert late[0] == chain[0]
    assert late[1] != chain[1]


def test_events_carry_the_low_64_bits() -> None:
    assert external_hash(BlockHash(bytes(range(32)))) == int.from_bytes(bytes(range(24, 32)), "big")


def test_an_unknown_hash_is_refused() -> None:
    with pytest.raises(InputError, match="no offline hash for 'xxhash'"):
        hash_function("xxhash")
