"""`CacheEngine`: a governed cache in a program, over HTTP or in the same process.

    with CacheEngine.connect("http://127.0.0.1:8000", group="shop") as engine:
        engine.put("support-agent")
        engine.pin("support-agent")
        answer = engine.generate("support-agent", {"question": "Where is my parcel?"})

`CacheEngine.local` takes an in-process `vllm.LLM` that was made with `local_arguments`.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from prefixctl.api.pins import Scope, find_published, governed_prefix, namespaces_of
from prefixctl.api.tenants import on_behalf
from prefixctl.config import Config, load_config
from prefixctl.core.ports import ChatRequest
from prefixctl.core.tenancy import UNSALTED, NamespaceKind, SaltedNamespace
from prefixctl.core.usage import CacheState, CacheUse
from prefixctl.engine.admin import ADMIN_TOKEN, AdminClient, EngineState, GovernedPrefix, PinState
from prefixctl.engine.http import HttpEngine
from prefixctl.engine.launch import SCHEDULER, device_settings
from prefixctl.errors import ConfigError, UsageError
from prefixctl.ids import OnBehalf, Salt
from prefixctl.prompts.render import render
from prefixctl.prompts.target import Measurement, Target, load_target, measure
from prefixctl.registry.publish import Published
from prefixctl.yamlfile import did_you_mean


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
    """A governed engine, wherever it runs.

    Attributes:
        name: Its address, or ``local``.
    """

    name: str

    def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The answers of all its ranks; see `prefixctl.vllm_plugin.desk`."""

    def compute(self, token_ids: Sequence[int], salt: Salt | None) -> None:
        """Leave a prefix in the cache."""

    def chat(
        self, request: ChatRequest, *, max_tokens: int, salt: Salt | None
    ) -> tuple[str, CacheUse]:
        """Answer a request greedily."""

    def close(self) -> None:
        """Let go of what was opened."""


class CacheEngine:
    """The operations on one governed engine, by the names of published prompts."""

    def __init__(
        self,
        backend: Backend,
        config: Config,
        target: str | None = None,
        space: SaltedNamespace = UNSALTED,
        asked_for: Salt | None = None,
    ) -> None:
        """Use `connect` or `local`. Errors as in `prompts.target.load_target`."""
        self._backend = backend
        self._config = config
        self._space = space
        self._salt = asked_for or space.salt
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
        group: str | None = None,
        tenant: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """A server that `prefixctl serve` started.

        Args:
            url: Its base address.
            config: The configuration; the nearest prefixctl.yaml if omitted.
            target: What the server is; may be left out if there is one only.
            group: The share group that everything is for.
            tenant: The tenant that everything is for. Without both there is no salt.
            environment: Where the admin token, the server's API key and the tenancy secret
                stand; `os.environ`.

        Raises:
            ConfigError: If there is no admin token, the target is not clear, somebody is named and
                there is no tenancy secret, or nobody is and the server is behind a gateway.
        """
        environment = os.environ if environment is None else environment
        config = config or load_config()
        token = environment.get(ADMIN_TOKEN, "").strip()
        if not token:
            raise ConfigError("no admin token", hint=f"set ${ADMIN_TOKEN} to the server's")
        scope = _scope(target, group, tenant)
        space, asked_for = namespaces_of(config, scope, environment)[0], None
        api_key = environment.get(config.server.api_key_env)
        if config.gateway.enabled:
            asked_for, api_key = _asked_for(group, tenant), token
        _, settings = config.only_target(target)
        backend = HttpBackend(
            HttpEngine(url, model=config.served_name(settings), api_key=api_key),
            AdminClient(url, token),
        )
        return cls(backend, config, target, space, asked_for)

    @classmethod
    def local(
        cls,
        llm: Any,
        config: Config | None = None,
        *,
        target: str | None = None,
        group: str | None = None,
        tenant: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """An in-process engine: ``vllm.LLM(MODEL, **local_arguments(config))``.

        Arguments and errors as in `connect`, less those of the server.
        """
        config = config or load_config()
        environment = os.environ if environment is None else environment
        space = namespaces_of(config, _scope(target, group, tenant), environment)[0]
        return cls(LocalBackend(llm), config, target, space)

    def put(self, name: str) -> list[PinState]:
        """Make a version resident: ``name`` for the live one, or ``name@version``.

        Raises:
            RegistryError: If it is not published.
        """
        prefix = self._prefix(name)
        self._backend.compute(prefix.token_ids, self._salt)
        return self.resident(name)

    def pin(self, name: str, *, auto_hits: int | None = None) -> list[PinState]:
        """Keep a version; what is missing of it is computed. Errors as in `put`."""
        prefix = self._prefix(name)
        body = prefix.to_json() | {"auto_hits": auto_hits}
        answers = self._backend.ask({"ask": "pin", "prefix": body})
        if auto_hits is None and any(a["accepted"] and a["blocks"] for a in answers):
            self._backend.compute(prefix.token_ids, self._salt)
        refused = {rank: a for rank, a in enumerate(answers) if not a["accepted"]}
        states = self.resident(name)
        for rank, answer in refused.items():
            states[rank] = PinState.from_json(self._backend.name, rank, answer)
        return states

    def unpin(self, name: str) -> list[int | None]:
        """Let a version go; blocks given back on each rank, None where it was not pinned."""
        question = {"ask": "unpin", "name": self._prefix(name).name}
        return [answer["unpinned"] for answer in self._backend.ask(question)]

    def resident(self, name: str) -> list[PinState]:
        """How much of a version each rank has. Errors as in `put`."""
        question = {"ask": "resident", "prefixes": [self._prefix(name).to_json()]}
        return [
            PinState.from_json(self._backend.name, rank, answer["prefixes"][0])
            for rank, answer in enumerate(self._backend.ask(question))
        ]

    def generate(
        self,
        name: str,
        values: Mapping[str, str],
        *,
        max_tokens: int = 128,
    ) -> Generation:
        """Answer with a published prompt, greedily.

        Args:
            name: ``name`` for the live version, or ``name@version``.
            values: By parameter; those of the target go without saying.
            max_tokens: Length of the answer at most.

        Raises:
            PromptError: If a value is missing.
            UsageError: If there is no such parameter.
            RegistryError: If it is not published.
        """
        published = find_published(self._config, name)
        prompt = published.prompt
        for value in values:
            if value not in prompt.parameters:
                raise UsageError(
                    f"{prompt.name} has no parameter '{value}'",
                    hint=did_you_mean(value, list(prompt.parameters)),
                )
        given = {**self._settings.parameters, **values}
        request = render(prompt, {k: v for k, v in given.items() if k in prompt.parameters})
        text, use = self._backend.chat(request, max_tokens=max_tokens, salt=self._salt)
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
            EngineState.from_json(self._backend.name, rank, answer)
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

    def _measure(self, published: Published) -> Measurement:
        key = (str(published.prompt.name), published.entry.version)
        if key not in self._measured:
            self._measured[key] = measure(published.prompt, self._target, self._config.prefix_cache)
        return self._measured[key]

    def _prefix(self, name: str) -> GovernedPrefix:
        published = find_published(self._config, name)
        return governed_prefix(published, self._target, self._measure(published), self._space)


def _scope(target: str | None, group: str | None, tenant: str | None) -> Scope:
    if group is not None and tenant is not None:
        raise UsageError("a group and a tenant at once", hint="make an engine for each")
    return Scope(
        target=target,
        groups=() if group is None else (group,),
        tenants=() if tenant is None else (tenant,),
    )


def _asked_for(group: str | None, tenant: str | None) -> OnBehalf:
    """Whom a gateway is told that the requests are for: it sets the salt itself."""
    if group is not None:
        return on_behalf(NamespaceKind.GROUP, group)
    if tenant is not None:
        return on_behalf(NamespaceKind.TENANT, tenant)
    raise ConfigError(
        "the server is behind its gateway, where nothing is for nobody",
        hint="name a group or a tenant",
    )


class HttpBackend:
    """A governed server."""

    def __init__(self, engine: HttpEngine, admin: AdminClient) -> None:
        self.name = admin.url
        self._engine = engine
        self._admin = admin

    def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """See `Backend.ask`."""
        return self._admin.ask(question)

    def compute(self, token_ids: Sequence[int], salt: Salt | None) -> None:
        """See `Backend.compute`."""
        self._engine.compute(token_ids, salt=salt)

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

    name = "local"

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._plugin = importlib.import_module("prefixctl.vllm_plugin.local")

    def ask(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """See `Backend.ask`."""
        answer: dict[str, Any] = json.loads(self._plugin.ask(self._llm, json.dumps(question)))
        return [answer]

    def compute(self, token_ids: Sequence[int], salt: Salt | None) -> None:
        """See `Backend.compute`."""
        self._plugin.compute(self._llm, token_ids, salt)

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
