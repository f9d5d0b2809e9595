"""`CacheEngine`: a governed cache in a program, over HTTP or in the same process.

    with CacheEngine.connect("http://127.0.0.1:8000", config) as engine:
        engine.put("support-agent")
        engine.pin("support-agent")
        answer = engine.generate("support-agent", {"question": "Where is my parcel?"})

`CacheEngine.local` takes an in-process `vllm.LLM` that was made with `local_arguments`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from prefixctl.config import Config, load_config
from prefixctl.core.ports import ChatRequest
from prefixctl.core.reference import version_number
from prefixctl.core.usage import CacheState, CacheUse
from prefixctl.engine.admin import ADMIN_TOKEN, AdminClient, EngineState, GovernedPrefix, PinState
from prefixctl.engine.http import HttpEngine
from prefixctl.engine.launch import SCHEDULER, device_settings
from prefixctl.errors import ConfigError, UsageError
from prefixctl.ids import Salt
from prefixctl.prompts.render import render
from prefixctl.prompts.target import Measurement, Target, load_target, measure, section_ends
from prefixctl.registry.publish import Published, load_live, load_published


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One answer.

    Attributes:
        text: What the model said.
        prefix: ``name@version`` that it was asked with.
        use: Prompt and cached tokens.
        state: Against the expected hit of the prefix.
    """

    text: str
    prefix: str
    use: CacheUse
    state: CacheState


class Backend(Protocol):
    """A governed engine, wherever it runs."""

    def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The answers of all its ranks; see `prefixctl.vllm_plugin.desk`."""

    def compute(self, prefix: GovernedPrefix) -> None:
        """Leave a prefix in the cache."""

    def chat(
        self, request: ChatRequest, *, max_tokens: int, salt: Salt | None
    ) -> tuple[str, CacheUse]:
        """Answer a request greedily."""

    def close(self) -> None:
        """Let go of what was opened."""


class CacheEngine:
    """The operations on one governed engine, by the names of published prompts."""

    def __init__(self, backend: Backend, config: Config, target: str | None = None) -> None:
        """Use `connect` or `local`. Errors as in `prompts.target.load_target`."""
        self._backend = backend
        self._config = config
        name, self._settings = config.only_target(target)
        self._target: Target = load_target(config, name)
        self._measured: dict[tuple[str, int], Measurement] = {}

    @classmethod
    def connect(
        cls,
        url: str,
        config: Config | None = None,
        *,
        target: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """A server that `prefixctl serve` started.

        Args:
            url: Its base address.
            config: The configuration; the nearest prefixctl.yaml if omitted.
            target: What the server is; may be left out if there is one only.
            environment: Where the admin token and the server's API key stand; `os.environ`.

        Raises:
            ConfigError: If there is no admin token, or the target is not clear.
        """
        environment = os.environ if environment is None else environment
        config = config or load_config()
        token = environment.get(ADMIN_TOKEN, "").strip()
        if not token:
            raise ConfigError("no admin token", hint=f"set ${ADMIN_TOKEN} to the server's")
        _, settings = config.only_target(target)
        backend = HttpBackend(
            HttpEngine(
                url,
                model=config.served_name(settings),
                api_key=environment.get(config.server.api_key_env),
            ),
            AdminClient(url, token),
        )
        return cls(backend, config, target)

    @classmethod
    def local(cls, llm: Any, config: Config | None = None, *, target: str | None = None) -> Self:
        """An in-process engine: ``vllm.LLM(MODEL, **local_arguments(config))``."""
        return cls(LocalBackend(llm), config or load_config(), target)

    def put(self, name: str, *, salt: Salt | None = None) -> list[PinState]:
        """Make a version resident: ``name`` for the live one, or ``name@version``.

        Raises:
            RegistryError: If it is not published.
        """
        prefix = self._prefix(name, salt)
        self._backend.compute(prefix)
        return self.resident(name, salt=salt)

    def pin(
        self, name: str, *, salt: Salt | None = None, auto_hits: int | None = None
    ) -> list[PinState]:
        """Keep a version; what is missing of it is computed. Errors as in `put`."""
        prefix = self._prefix(name, salt)
        body = prefix.to_json() | {"auto_hits": auto_hits}
        answers = self._backend.ask({"ask": "pin", "prefix": body})
        if auto_hits is None and any(a["accepted"] and a["blocks"] for a in answers):
            self._backend.compute(prefix)
        refused = {rank: a for rank, a in enumerate(answers) if not a["accepted"]}
        return [
            PinState.from_json("local", s.rank, refused[s.rank]) if s.rank in refused else s
            for s in self.resident(name, salt=salt)
        ]

    def unpin(self, name: str, *, salt: Salt | None = None) -> list[int | None]:
        """Let a version go; blocks given back on each rank, None where it was not pinned."""
        question = {"ask": "unpin", "name": self._prefix(name, salt).name}
        return [answer["unpinned"] for answer in self._backend.ask(question)]

    def resident(self, name: str, *, salt: Salt | None = None) -> list[PinState]:
        """How much of a version each rank has. Errors as in `put`."""
        question = {"ask": "resident", "prefixes": [self._prefix(name, salt).to_json()]}
        return [
            PinState.from_json("local", rank, answer["prefixes"][0])
            for rank, answer in enumerate(self._backend.ask(question))
        ]

    def generate(
        self,
        name: str,
        values: Mapping[str, str],
        *,
        max_tokens: int = 128,
        salt: Salt | None = None,
    ) -> Generation:
        """Answer with a published prompt, greedily.

        Args:
            name: ``name`` for the live version, or ``name@version``.
            values: By parameter; those of the target go without saying.
            max_tokens: Length of the answer at most.
            salt: The namespace's, if it has one.

        Raises:
            PromptError: If a value is missing.
            RegistryError: If it is not published.
        """
        published = self._published(name)
        prompt = published.prompt
        given = {**self._settings.parameters, **values}
        request = render(prompt, {k: v for k, v in given.items() if k in prompt.parameters})
        text, use = self._backend.chat(request, max_tokens=max_tokens, salt=salt)
        expected = self._measure(published).alignment.expected_hit_tokens
        return Generation(
            text=text,
            prefix=f"{prompt.name}@{published.entry.version}",
            use=use,
            state=use.state(expected),
        )

    def stats(self) -> list[EngineState]:
        """Policy, pool, pins and counters of each rank."""
        return [
            EngineState.from_json("local", rank, answer)
            for rank, answer in enumerate(self._backend.ask({"ask": "state"}))
        ]

    def close(self) -> None:
        """Let go of the engine; it stays as it is."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _published(self, name: str) -> Published:
        prompt, _, version = name.partition("@")
        if not version:
            return load_live(self._config, [prompt])[0]
        number = version_number(version)
        if number is None:
            raise UsageError("no number of a version behind '@'", hint=f"give {prompt}@3")
        return load_published(self._config, prompt, number)

    def _measure(self, published: Published) -> Measurement:
        key = (str(published.prompt.name), published.entry.version)
        if key not in self._measured:
            self._measured[key] = measure(published.prompt, self._target, self._config.prefix_cache)
        return self._measured[key]

    def _prefix(self, name: str, salt: Salt | None) -> GovernedPrefix:
        published = self._published(name)
        measured = self._measure(published)
        return GovernedPrefix(
            name=f"{published.prompt.name}@{published.entry.version}{_namespace(salt)}",
            token_ids=measured.token_ids,
            section_ends=section_ends(published.prompt, self._target, measured),
            salt=salt,
        )


def _namespace(salt: Salt | None) -> str:
    """A suffix that parts pins of one version under several salts, and reveals none."""
    if salt is None:
        return ""
    return "#" + hashlib.sha256(b"prefixctl-namespace-1" + salt.encode()).hexdigest()[:12]


class HttpBackend:
    """A governed server."""

    def __init__(self, engine: HttpEngine, admin: AdminClient) -> None:
        self._engine = engine
        self._admin = admin

    def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """See `Backend.ask`."""
        return self._admin.ask(question)

    def compute(self, prefix: GovernedPrefix) -> None:
        """See `Backend.compute`."""
        self._engine.compute(prefix.token_ids, salt=prefix.salt)

    def chat(
        self, request: ChatRequest, *, max_tokens: int, salt: Salt | None
    ) -> tuple[str, CacheUse]:
        """See `Backend.chat`."""
        return self._engine.chat(request, max_tokens=max_tokens, salt=salt)

    def close(self) -> None:
        """See `Backend.close`."""
        self._engine.close()
        self._admin.close()


class LocalBackend:
    """An in-process `vllm.LLM` with prefixctl's scheduler."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._plugin = importlib.import_module("prefixctl.vllm_plugin.local")

    def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """See `Backend.ask`."""
        answer: dict[str, Any] = json.loads(self._plugin.ask(self._llm, json.dumps(question)))
        return [answer]

    def compute(self, prefix: GovernedPrefix) -> None:
        """See `Backend.compute`."""
        self._plugin.compute(self._llm, prefix.token_ids, prefix.salt)

    def chat(
        self, request: ChatRequest, *, max_tokens: int, salt: Salt | None
    ) -> tuple[str, CacheUse]:
        """See `Backend.chat`."""
        text, prompt, cached = self._plugin.chat(self._llm, request, max_tokens, salt)
        return text, CacheUse(prompt_tokens=prompt, cached_tokens=cached)

    def close(self) -> None:
        """See `Backend.close`; the engine stays its owner's."""


def local_arguments(config: Config, *, target: str | None = None) -> dict[str, Any]:
    """What `vllm.LLM` is made with so that its cache is governed as the configuration says."""
    _, settings = config.only_target(target)
    return {
        "scheduler_cls": SCHEDULER,
        "additional_config": {"prefixctl": device_settings(config).to_json()},
        "enable_prefix_caching": True,
        "block_size": settings.block_size,
        "dtype": settings.dtype,
        "prefix_caching_hash_algo": settings.hash_algorithm,
    }
