"""One vLLM server over HTTP."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from prefixctl.core.ports import ChatRequest, Completion, ServerFacts
from prefixctl.core.usage import CacheUse
from prefixctl.engine.connection import Connection
from prefixctl.errors import ServerError, UnreachableError, UsageError
from prefixctl.ids import OnBehalf, Salt

MAX_MESSAGE = 300
"""Characters of a server's own words in a message of ours."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_REFUSAL_BYTES = 64 * 1024
RANK_HEADER = "X-data-parallel-rank"
BEHALF_HEADER = "X-Prefixctl-On-Behalf"
"""Of a gateway: an operator names in it whose salt to set."""
_LABELS = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class HttpEngine(Connection):
    """The `Engine` port over vLLM's OpenAI-compatible server."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 300.0,
        facts_timeout_seconds: float = 15.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect lazily to a server.

        Args:
            url: Base address, for example ``http://127.0.0.1:8000``.
            model: Served name to ask for; the server's first if omitted.
            api_key: Sent as a bearer token.
            timeout_seconds: For one whole completion.
            facts_timeout_seconds: For any other answer.
            transport: For tests.

        Raises:
            UsageError: If the address is none, or the API key cannot be sent.
        """
        try:
            super().__init__(
                url, token=api_key, timeout_seconds=timeout_seconds, transport=transport
            )
        except ValueError as exc:
            raise UsageError("the API key cannot be sent: it is not plain ASCII") from exc
        self._model = model
        self._timeout, self._facts_timeout = timeout_seconds, facts_timeout_seconds

    def facts(self) -> ServerFacts:
        """Read ``/v1/models`` and ``/metrics``. Errors as in `complete`.

        The ranks are counted from the ``engine`` label of the metrics.
        """
        entries = self._model_list()
        engines: set[str] = set()
        settings: dict[str, str] = {}
        for line in self.metrics_page().splitlines():
            if line.startswith(("vllm:cache_config_info{", "vllm:num_requests_running{")):
                labels = dict(_LABELS.findall(line))
                engines.add(labels.get("engine", "0"))
                if line.startswith("vllm:cache_config_info{"):
                    settings = labels
        if not engines:
            raise ServerError(
                f"{self._url}/metrics shows no series of vLLM, so the ranks cannot be counted",
                hint="give the server's own address, not that of a proxy before it",
            )
        lengths = [e["max_model_len"] for e in entries if isinstance(e.get("max_model_len"), int)]
        block_size = settings.get("block_size", "")
        caching = settings.get("enable_prefix_caching")
        return ServerFacts(
            models=tuple(str(e["id"]) for e in entries),
            ranks=len(engines),
            max_model_len=min(lengths, default=None),
            block_size=int(block_size) if block_size.isdecimal() else None,
            prefix_caching=None if caching is None else caching == "True",
            hash_algorithm=settings.get("prefix_caching_hash_algo"),
        )

    def metrics_page(self) -> str:
        """The server's ``/metrics``. Errors as in `complete`."""
        return self._get("/metrics").decode(errors="replace")

    def tokenize(self, request: ChatRequest) -> list[int]:
        """The exact token ids that the server makes of a request. Errors as in `complete`."""
        return self._tokens(self._body(request))

    def tokenize_text(self, text: str) -> list[int]:
        """The token ids of a text alone; no special tokens are added. Errors as in `complete`."""
        return self._tokens({"model": self._served(), "prompt": text, "add_special_tokens": False})

    def complete(
        self,
        request: ChatRequest,
        *,
        max_tokens: int = 1,
        salt: Salt | None = None,
        rank: int | None = None,
    ) -> Completion:
        """Run one greedy request and measure its time to first token.

        Raises:
            UnreachableError: If the server does not answer.
            ServerError: If it refuses the request or breaks off.
        """
        body = self._body(request) | {
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = _in_namespace(body, salt)
        return self._stream(body, headers if rank is None else {**headers, RANK_HEADER: str(rank)})

    def complete_tokens(
        self, request: ChatRequest, *, max_tokens: int, salt: Salt | None = None
    ) -> Completion:
        """As `complete`, with the generated token ids and their two best log-probabilities."""
        body = self._body(request) | {
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "logprobs": True,
            "top_logprobs": 2,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        headers = _in_namespace(body, salt)
        answer = self._object(
            "/v1/chat/completions",
            self._request("POST", "/v1/chat/completions", self._timeout, body, headers),
        )
        try:
            choice = answer["choices"][0]
            return Completion(
                use=self._use(answer["usage"], None),
                token_ids=tuple(choice["token_ids"]),
                logprobs=tuple(
                    {int(c["token"].removeprefix("token_id:")): c["logprob"] for c in best}
                    for best in (t["top_logprobs"] for t in choice["logprobs"]["content"])
                ),
            )
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise self._unexpected("/v1/chat/completions", exc) from exc

    def compute(self, token_ids: Sequence[int], *, salt: Salt | None = None) -> None:
        """One request that leaves these tokens in the cache. Errors as in `complete`."""
        body: dict[str, Any] = {
            "model": self._served(),
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0.0,
        }
        headers = _in_namespace(body, salt)
        self._request("POST", "/v1/completions", self._timeout, body, headers)

    def chat(
        self, request: ChatRequest, *, max_tokens: int, salt: Salt | None = None
    ) -> tuple[str, CacheUse]:
        """The greedy answer to a request, and what it took. Errors as in `complete`."""
        body = self._body(request) | {"max_tokens": max_tokens, "temperature": 0.0}
        headers = _in_namespace(body, salt)
        path = "/v1/chat/completions"
        answer = self._object(path, self._request("POST", path, self._timeout, body, headers))
        try:
            return str(answer["choices"][0]["message"]["content"] or ""), self._use(
                answer["usage"], None
            )
        except (KeyError, IndexError, TypeError) as exc:
            raise self._unexpected(path, exc) from exc

    def _served(self) -> str:
        if self._model is None:
            self._model = str(self._model_list()[0]["id"])
        return self._model

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._served(), "messages": list(request.messages)}
        if request.tools is not None:
            # Without a tool parser vLLM refuses tool_choice "auto"; "none" renders tools alike.
            body |= {"tools": list(request.tools), "tool_choice": "none"}
        return body

    def _tokens(self, body: Mapping[str, Any]) -> list[int]:
        tokens = self._object("/tokenize", self._post("/tokenize", body)).get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(t, int) for t in tokens):
            raise self._unexpected("/tokenize", "no tokens in it")
        return tokens

    def _model_list(self) -> list[dict[str, Any]]:
        entries = self._object("/v1/models", self._get("/v1/models")).get("data")
        if not isinstance(entries, list) or not all(
            isinstance(e, dict) and "id" in e for e in entries
        ):
            raise self._unexpected("/v1/models", "no models in it")
        if not entries:
            raise ServerError(f"{self._url} serves no model")
        return entries

    def _get(self, path: str) -> bytes:
        return self._request("GET", path, self._facts_timeout)

    def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        return self._request("POST", path, self._facts_timeout, body)

    def _request(
        self,
        method: str,
        path: str,
        seconds: float,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The body of a successful answer."""
        data = bytearray()
        for chunk in self._chunks(method, path, seconds, body, headers):
            data += chunk
            if len(data) > MAX_ANSWER_BYTES:
                raise self._unexpected(path, f"more than {MAX_ANSWER_BYTES:,} bytes")
        return bytes(data)

    def _stream(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Completion:
        path = "/v1/chat/completions"
        started = time.perf_counter()
        first: float | None = None
        usage: object = None
        rest = b""
        for chunk in self._chunks("POST", path, self._timeout, body, headers):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_ANSWER_BYTES:
                raise self._unexpected(path, f"a line of more than {MAX_ANSWER_BYTES:,} bytes")
            for line in lines:
                if line.startswith(b"data: {"):
                    first = first if first is not None else time.perf_counter() - started
                    usage = self._event(line).get("usage") or usage
        if usage is None:
            raise ServerError(f"{self._url} broke off before it reported its usage")
        return Completion(use=self._use(usage, first))

    def _chunks(
        self,
        method: str,
        path: str,
        seconds: float,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[bytes]:
        """The body of a successful answer as it comes, within a time for all of it."""
        deadline = time.monotonic() + seconds
        try:
            with self._client.stream(
                method, path, json=body, headers=headers, timeout=httpx.Timeout(seconds, connect=10)
            ) as response:
                if not response.is_success:
                    hide = (body or {}).get("cache_salt")
                    raise self._refusal(path, response, deadline, hide)
                for chunk in response.iter_bytes():
                    if time.monotonic() > deadline:
                        raise ServerError(f"{self._url}{path} did not end within {seconds:g} s")
                    yield chunk
        except (httpx.HTTPError, UnicodeError) as exc:
            raise self._unreachable(exc) from exc
        except (TypeError, ValueError) as exc:
            raise ServerError(f"the request cannot be sent as JSON: {exc}") from exc

    def _refusal(
        self, path: str, response: httpx.Response, deadline: float, hide: str | None
    ) -> ServerError:
        """What a server said against a request, without the salt that was sent."""
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > MAX_REFUSAL_BYTES or time.monotonic() > deadline:
                break
        message = data.decode(errors="replace")
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            found = json.loads(message)
            message = str(found.get("error", found).get("message") or message)
        if hide:
            message = message.replace(hide, "***")
        status = response.status_code
        return ServerError(
            f"{self._url}{path} answered {status}: {message[:MAX_MESSAGE]}",
            hint="does the server want an API key? set it in the variable of server.api_key_env"
            if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}
            else None,
        )

    def _object(self, path: str, data: bytes) -> dict[str, Any]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as exc:
            raise self._unexpected(path, "not JSON") from exc
        if not isinstance(value, dict):
            raise self._unexpected(path, "not an object")
        return value

    def _event(self, line: bytes) -> Mapping[str, Any]:
        try:
            event: Mapping[str, Any] = json.loads(line.removeprefix(b"data: "))
        except (ValueError, RecursionError) as exc:
            raise self._unexpected("/v1/chat/completions", "a broken event") from exc
        if "error" in event:
            raise ServerError(f"{self._url} broke off: {str(event['error'])[:MAX_MESSAGE]}")
        return event

    def _use(self, usage: object, ttft_seconds: float | None) -> CacheUse:
        """The usage of an answer; what is null or absent is not reported, never zero."""
        values = usage if isinstance(usage, dict) else {}
        details = values.get("prompt_tokens_details")
        prompt = values.get("prompt_tokens")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if isinstance(prompt, bool) or not isinstance(prompt, int) or prompt < 0:
            raise self._unexpected("/v1/chat/completions", "no usage in it")
        if cached is not None and not isinstance(cached, int):
            raise self._unexpected("/v1/chat/completions", "cached tokens that are no number")
        if cached is not None and not 0 <= cached <= prompt:
            raise self._unexpected(
                "/v1/chat/completions", f"{cached} cached of {prompt} prompt tokens"
            )
        return CacheUse(prompt_tokens=prompt, cached_tokens=cached, ttft_seconds=ttft_seconds)

    def _unexpected(self, path: str, what: object) -> ServerError:
        return ServerError(
            f"{self._url}{path} answered something unexpected: {what}",
            hint="is this the address of a vLLM server?",
        )

    def _unreachable(self, exc: Exception) -> UnreachableError:
        return UnreachableError(
            f"{self._url} does not answer: {str(exc) or type(exc).__name__}",
            hint="is the server up? start one with `prefixctl serve`",
        )


def _in_namespace(body: dict[str, Any], salt: Salt | None) -> dict[str, str]:
    """Say a request's namespace: by its salt in the body, or to a gateway in a header."""
    if isinstance(salt, OnBehalf):
        return {BEHALF_HEADER: salt}
    if salt is not None:
        body["cache_salt"] = salt
    return {}
