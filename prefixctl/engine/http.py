"""One vLLM server over HTTP."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from prefixctl.core.ports import ChatRequest, Completion
from prefixctl.core.usage import CacheUse
from prefixctl.errors import ServerError, UnreachableError
from prefixctl.ids import Salt

RANK_HEADER = "X-data-parallel-rank"
_LABELS = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says of itself.

    Attributes:
        models: Served model names.
        max_model_len: Longest request in tokens, if it says so.
        ranks: Data-parallel ranks.
        block_size: Tokens in a KV block, or None if not shown.
        prefix_caching: Whether the prefix cache is on, or None if not shown.
        hash_algorithm: The block hash's name, or None if not shown.
    """

    models: tuple[str, ...]
    max_model_len: int | None
    ranks: int
    block_size: int | None
    prefix_caching: bool | None
    hash_algorithm: str | None


class HttpEngine:
    """The `Engine` port over vLLM's OpenAI-compatible server."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 300.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect lazily to a server.

        Args:
            url: Base address, for example ``http://127.0.0.1:8000``.
            model: Served name to ask for; the server's first if omitted.
            api_key: Sent as a bearer token.
            timeout_seconds: For one whole answer.
            transport: For tests.
        """
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = url.rstrip("/").removesuffix("/v1")
        self._model = model
        try:
            self._client = httpx.Client(
                base_url=self._url,
                headers=headers,
                timeout=httpx.Timeout(timeout_seconds, connect=10.0),
                transport=transport,
                trust_env=False,
            )
        except (httpx.InvalidURL, ValueError) as exc:
            raise UnreachableError(f"no address: '{url}': {exc}") from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    @property
    def url(self) -> str:
        """The base address."""
        return self._url

    def models(self) -> Sequence[str]:
        """The served model names. Errors as in `complete`."""
        return [str(entry["id"]) for entry in self._model_list()]

    def ranks(self) -> int:
        """The data-parallel ranks, counted from the ``engine`` label of ``/metrics``."""
        return self.facts().ranks

    def facts(self) -> ServerFacts:
        """Read ``/v1/models`` and ``/metrics``. Errors as in `complete`."""
        entries = self._model_list()
        engines: set[str] = set()
        settings: dict[str, str] = {}
        for line in self._get("/metrics").text.splitlines():
            if line.startswith(("vllm:cache_config_info{", "vllm:num_requests_running{")):
                labels = dict(_LABELS.findall(line))
                engines.add(labels.get("engine", "0"))
                if line.startswith("vllm:cache_config_info{"):
                    settings = labels
        lengths = [e["max_model_len"] for e in entries if e.get("max_model_len")]
        block_size = settings.get("block_size", "")
        caching = settings.get("enable_prefix_caching")
        return ServerFacts(
            models=tuple(str(e["id"]) for e in entries),
            max_model_len=min(lengths, default=None),
            ranks=max(len(engines), 1),
            block_size=int(block_size) if block_size.isdigit() else None,
            prefix_caching=None if caching is None else caching == "True",
            hash_algorithm=settings.get("prefix_caching_hash_algo"),
        )

    def tokenize(self, request: ChatRequest) -> list[int]:
        """The exact token ids that the server makes of a request. Errors as in `complete`."""
        answer = self._post("/tokenize", self._body(request)).json()
        return [int(t) for t in answer["tokens"]]

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
        if salt is not None:
            body["cache_salt"] = salt
        return self._stream(body, rank)

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
        if salt is not None:
            body["cache_salt"] = salt
        answer = self._post("/v1/chat/completions", body).json()
        choice = answer["choices"][0]
        return Completion(
            use=_use(answer["usage"], None),
            token_ids=tuple(choice["token_ids"]),
            logprobs=tuple(
                {int(c["token"].removeprefix("token_id:")): c["logprob"] for c in t["top_logprobs"]}
                for t in choice["logprobs"]["content"]
            ),
        )

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        if self._model is None:
            self._model = str(self._model_list()[0]["id"])
        body: dict[str, Any] = {"model": self._model, "messages": list(request.messages)}
        if request.tools is not None:
            # Without a tool parser vLLM refuses tool_choice "auto"; "none" renders tools alike.
            body |= {"tools": list(request.tools), "tool_choice": "none"}
        return body

    def _model_list(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._get("/v1/models").json().get("data") or []
        if not entries:
            raise ServerError(f"{self._url} serves no model")
        return entries

    def _get(self, path: str) -> httpx.Response:
        return self._checked(self._request("GET", path))

    def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        return self._checked(self._request("POST", path, json=body))

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **options)
        except httpx.HTTPError as exc:
            raise self._unreachable(exc) from exc

    def _stream(self, body: Mapping[str, Any], rank: int | None) -> Completion:
        headers = {} if rank is None else {RANK_HEADER: str(rank)}
        started = time.perf_counter()
        first: float | None = None
        usage: Mapping[str, Any] | None = None
        try:
            with self._client.stream(
                "POST", "/v1/chat/completions", json=body, headers=headers
            ) as response:
                if response.status_code != httpx.codes.OK:
                    response.read()
                    self._checked(response)
                for line in response.iter_lines():
                    if not line.startswith("data: {"):
                        continue
                    first = first if first is not None else time.perf_counter() - started
                    usage = self._event(line).get("usage") or usage
        except httpx.HTTPError as exc:
            raise self._unreachable(exc) from exc
        if usage is None:
            raise ServerError(f"{self._url} broke off before it reported its usage")
        return Completion(use=_use(usage, first))

    def _event(self, line: str) -> Mapping[str, Any]:
        event: Mapping[str, Any] = json.loads(line.removeprefix("data: "))
        if "error" in event:
            raise ServerError(f"{self._url} broke off: {event['error']}")
        return event

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if response.is_success:
            return response
        try:
            body = response.json()
            message = body.get("error", body).get("message") or body
        except (ValueError, AttributeError):
            message = response.text[:200]
        raise ServerError(
            f"{self._url}{response.request.url.path} answered {response.status_code}: {message}"
        )

    def _unreachable(self, exc: httpx.HTTPError) -> UnreachableError:
        return UnreachableError(
            f"{self._url} does not answer: {str(exc) or type(exc).__name__}",
            hint="is the server up? start one with `prefixctl serve`",
        )


def _use(usage: Mapping[str, Any], ttft_seconds: float | None) -> CacheUse:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if details else None
    return CacheUse(
        prompt_tokens=int(usage["prompt_tokens"]), cached_tokens=cached, ttft_seconds=ttft_seconds
    )
