"""Every route of vLLM 0.32, and what the gateway does with it.

A route that is not named here is refused: a new release may bring one that reaches the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Access(StrEnum):
    """Who may use a route."""

    OPEN = "open"
    METRICS = "metrics"
    TENANT = "tenant"
    OPERATOR = "operator"
    OWN_GUARD = "own_guard"


class Shape(StrEnum):
    """What a body looks like."""

    CHAT = "chat"
    COMPLETION = "completion"
    RESPONSE = "response"
    MESSAGES = "messages"
    TOKENS = "tokens"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is done with the requests to a path.

    Attributes:
        path: As the server has it.
        access: Who may use it.
        shape: What its body looks like; None for a route whose body is not read.
        salted: Whether it reaches the engine's cache, so that the tenant's salt is set.
        ticket: Whether the engine's parameters can carry the ticket: public prefixes are shared.
        expands: Whether a prefix can be named by its key.
    """

    path: str
    access: Access = Access.TENANT
    shape: Shape | None = None
    salted: bool = False
    ticket: bool = False
    expands: bool = False

    @property
    def counts(self) -> bool:
        """Whether its requests are prefill work, counted and limited as such."""
        return self.salted


def _engine(path: str, shape: Shape, *, ticket: bool = True, expands: bool = False) -> Route:
    return Route(path=path, shape=shape, salted=True, ticket=ticket, expands=expands)


def _text(path: str, shape: Shape, *, expands: bool = False) -> Route:
    """Tokens and text alone: the engine is not reached."""
    return Route(path=path, shape=shape, expands=expands)


_ALL = (
    _engine("/v1/chat/completions", Shape.CHAT, expands=True),
    _engine("/v1/completions", Shape.COMPLETION, expands=True),
    _engine("/v1/responses", Shape.RESPONSE, expands=True),
    _engine("/v1/messages", Shape.MESSAGES, expands=True),
    _engine("/v1/chat/completions/batch", Shape.OTHER),
    _engine("/invocations", Shape.OTHER),
    # Their bodies know a salt, but no parameters of the engine.
    *(
        _engine(path, Shape.OTHER, ticket=False)
        for path in (
            "/v1/systemone", "/generative_scoring", "/pooling", "/classify", "/v1/embeddings",
            "/v2/embed", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
        )
    ),
    _text("/tokenize", Shape.CHAT, expands=True),
    _text("/v1/messages/count_tokens", Shape.MESSAGES, expands=True),
    *(
        _text(path, Shape.OTHER)
        for path in (
            "/detokenize", "/v1/chat/completions/render", "/v1/completions/render",
            "/v1/messages/render", "/v1/responses/render", "/v1/chat/completions/derender",
            "/v1/completions/derender",
        )
    ),
    # Token ids in, and media by the hash of anybody's: for routers, not for tenants.
    Route(path="/inference/v1/generate", access=Access.OPERATOR, shape=Shape.TOKENS, salted=True,
          ticket=True),
    *(Route(path=path, access=Access.OPEN) for path in ("/health", "/ping", "/version", "/load")),
    Route(path="/metrics", access=Access.METRICS),
    Route(path="/v1/models"),
    *(
        Route(path=path, access=Access.OPERATOR)
        for path in (
            "/inference/v1/abort_requests", "/abort_requests", "/kv_event_sources",
            "/tokenizer_info", "/openapi.json", "/docs", "/redoc", "/server_info",
            "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/collective_rpc",
            "/sleep", "/release_kv_cache_memory", "/wake_up", "/is_sleeping", "/pause", "/resume",
            "/is_paused", "/start_profile", "/stop_profile", "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter", "/scale_elastic_ep", "/is_scaling_elastic_ep",
            "/fault_tolerance/status",
        )
    ),
)  # fmt: skip
ROUTES = {route.path: route for route in _ALL}
"""vLLM 0.32: the routes that a server lists when it starts, and those of its other tasks. The
speech, realtime and Cohere routes, stored responses and the routes that change weights are left
out on purpose: their bodies cannot be salted, or what they read belongs to nobody in particular."""
OWN_PREFIX = "/prefixctl/"
_OWN = Route(path=OWN_PREFIX, access=Access.OWN_GUARD)


def find_route(path: str, root_path: str = "") -> Route | None:
    """The route of a request's path, None for one that is not known.

    Args:
        path: The decoded path.
        root_path: Where the application is mounted; the server's router takes it off as well.
    """
    if root_path and path.startswith(root_path) and path[len(root_path) :][:1] in {"", "/"}:
        path = path[len(root_path) :]
    if path.startswith(OWN_PREFIX):
        return _OWN
    return ROUTES.get(path)
