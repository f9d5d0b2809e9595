"""What a request's body may carry, and what the gateway puts into it.

Bodies are the parsed JSON objects of clients; they are changed in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, MutableMapping
from typing import Any

from prefixctl.core.ticket import TICKET_ARGUMENT
from prefixctl.gateway.namespaces import Seal
from prefixctl.gateway.routes import Route, Shape

Body = MutableMapping[str, Any]

SALT_FIELD = "cache_salt"
XARGS_FIELD = "vllm_xargs"
_TENANT_DROPS = (SALT_FIELD, "kv_transfer_params", "ec_transfer_params", "request_id")
_OPERATOR_DROPS = (SALT_FIELD,)
_XARG_PREFIXES = (TICKET_ARGUMENT, "kv_", "ec_", "cache", "lmcache", "mooncake")
"""Parameters that the engine, its connectors or the governed scheduler read about the cache."""
_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_STORED_FIELDS = ("previous_response_id", "background")


def clean(body: Body, *, operator: bool = False, drop_xargs: Collection[str] = ()) -> Counter[str]:
    """Take out what touches the cache and is not the client's to say; what was dropped.

    Args:
        body: The body.
        operator: Whether an operator sends it, who may move blocks between servers.
        drop_xargs: Further entries of `vllm_xargs` to drop.
    """
    dropped: Counter[str] = Counter()
    for name in _OPERATOR_DROPS if operator else _TENANT_DROPS:
        if body.pop(name, None) is not None:
            dropped[name] += 1
    _clean_arguments(body, XARGS_FIELD, drop_xargs, dropped)
    sampling = body.get("sampling_params")
    if isinstance(sampling, dict):
        _clean_arguments(sampling, "extra_args", drop_xargs, dropped)
    for name, value in body.items():
        if name != "prompt":  # text or token ids, which may be many
            _clean_media(value, dropped)
    return dropped


def _clean_arguments(
    body: Body, field: str, drop_xargs: Collection[str], dropped: Counter[str]
) -> None:
    arguments = body.get(field)
    if not isinstance(arguments, dict):
        return
    for name in list(arguments):
        if name.lower().startswith(_XARG_PREFIXES) or name in drop_xargs:
            del arguments[name]
            dropped[field] += 1


def _clean_media(holder: object, dropped: Counter[str]) -> None:
    """Media that a client names by an id of its own could be anybody's: drop the ids.

    A message, something to be scored, or lists of them, batches of conversations among them.
    """
    if isinstance(holder, list):
        for each in holder:
            if isinstance(each, dict | list):
                _clean_media(each, dropped)
    content = holder.get("content") if isinstance(holder, dict) else None
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") != "text" and "uuid" in part:
            del part["uuid"]
            dropped["media_uuid"] += 1
        _clean_media(part, dropped)  # a tool's result has parts of its own


def stored_field(body: Body) -> str | None:
    """A field that asks for responses kept on the server, which know no tenant; None if none."""
    return next((name for name in _STORED_FIELDS if body.get(name)), None)


def apply_seal(body: Body, route: Route, seal: Seal) -> None:
    """Set the salt, and the ticket where the engine's parameters can carry it."""
    body[SALT_FIELD] = seal.salt
    if not route.ticket:
        return
    if route.shape is Shape.TOKENS:
        holder, name = body.get("sampling_params"), "extra_args"
        if not isinstance(holder, dict):
            return
    else:
        holder, name = body, XARGS_FIELD
    arguments = holder.get(name)
    if not isinstance(arguments, dict):
        if arguments is not None:
            return  # not what the server accepts: it says so itself
        arguments = holder[name] = {}
    arguments[TICKET_ARGUMENT] = seal.ticket


def rename_session(body: Body, pseudonym: str) -> None:
    """A session's name stays the tenant's own: two tenants may choose the same."""
    arguments = body.get(XARGS_FIELD)
    for holder in (body, arguments if isinstance(arguments, dict) else {}):
        session = holder.get("session_id")
        if isinstance(session, str) and session:
            holder["session_id"] = f"{pseudonym}-{session}"


def request_usage(body: Body, route: Route) -> bool:
    """Ask a stream for its usage; True if the client had not, and must not see it."""
    if route.shape not in {Shape.CHAT, Shape.COMPLETION} or not _is_true(body.get("stream")):
        return False
    options = body.get("stream_options")
    if options is None:
        body["stream_options"] = {"include_usage": True}
        return True
    if not isinstance(options, dict) or _is_true(options.get("include_usage")):
        return False
    options["include_usage"] = True
    return True


def _is_true(value: object) -> bool:
    """Whether the server takes a value for true: its models read numbers and words as well."""
    return value == 1 or (isinstance(value, str) and value.lower() in _TRUE)
