"""How the traffic that an edit makes cold is printed: lines that also read well as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prefixctl.cli.output import say

if TYPE_CHECKING:
    from prefixctl.registry.bump_traffic import PromptTraffic, Traffic

SHOWN_LINES = 5


def traffic_value(traffic: Traffic) -> dict[str, Any]:
    """The traffic as JSON; shares are fractions of 1."""
    return {
        "log": traffic.path,
        "requests": traffic.requests,
        "prompt_tokens": traffic.prompt_tokens,
        "counted_requests": traffic.counted_requests,
        "counts_exact": traffic.counts_exact,
        "matched": traffic.matched,
        "unmatched": traffic.unmatched,
        "unmatched_tokens": traffic.unmatched_tokens,
        "misnamed": traffic.misnamed,
        **_cold_value(traffic),
        "prompts": [_prompt_value(p, traffic) for p in traffic.prompts],
        "failed": traffic.failed,
        "malformed_count": traffic.malformed_count,
        "malformed": [{"line": m.line, "reason": m.reason} for m in traffic.malformed],
    }


def print_traffic(traffic: Traffic) -> None:
    """The traffic as text."""
    for line in _lines(traffic):
        say(line)


def _lines(traffic: Traffic) -> Iterator[str]:
    yield (
        f"traffic in {traffic.path}: {_requests(traffic.requests)}, "
        f"{traffic.prompt_tokens:,} prompt tokens{_counted(traffic)}"
    )
    yield f"goes cold: {_cold(traffic)}"
    for prompt in traffic.prompts:
        if prompt.requests or prompt.changed:
            yield f"- {_prompt(prompt, traffic)}"
    share = _percent(traffic.unmatched, traffic.requests)
    named = f"; {traffic.misnamed:,} of them name one, but have another text"
    yield (
        f"- no governed prompt: {_requests(traffic.unmatched)} ({share})"
        f"{named if traffic.misnamed else ''}"
    )
    if traffic.failed:
        yield f"- left out: {_requests(traffic.failed)} that failed or were refused"
    if traffic.malformed_count:
        yield f"- left out: {_malformed(traffic)}"


def _cold(traffic: Traffic) -> str:
    unknown = ", ".join(f"{p.name}@{p.version}" for p in traffic.cold_unknown)
    why = (
        f"unknown for {unknown}: no target in prefixctl.yaml (fill in `targets:`), and the text "
        "of that version is nowhere"
    )
    if unknown and not traffic.cold_requests:
        return why
    known = (
        f"{_requests(traffic.cold_requests)} "
        f"({_percent(traffic.cold_requests, traffic.requests)}), {traffic.cold_tokens:,} prompt "
        f"tokens ({_percent(traffic.cold_tokens, traffic.prompt_tokens)})"
    )
    return f"at least {known}; {why}" if unknown else known


def _cold_value(traffic: Traffic) -> dict[str, Any]:
    """What goes cold; null where nothing tells it for one of the prompts."""
    if traffic.cold_unknown:
        names = ("cold_requests", "cold_tokens", "cold_request_share", "cold_token_share")
        return dict.fromkeys(names)
    return {
        "cold_requests": traffic.cold_requests,
        "cold_tokens": traffic.cold_tokens,
        "cold_request_share": _share(traffic.cold_requests, traffic.requests),
        "cold_token_share": _share(traffic.cold_tokens, traffic.prompt_tokens),
    }


def _prompt(prompt: PromptTraffic, traffic: Traffic) -> str:
    head = f"{prompt.name}@{prompt.version}: {_requests(prompt.requests)}"
    if prompt.requests:
        head += f" ({_percent(prompt.requests, traffic.requests)})"
    if not prompt.text_found:
        how = "the digests of its blocks" if prompt.by_blocks else "key or name only"
        head += (
            f", matched by {how}: its text is in neither the registry, the work tree nor git's "
            "history (in CI check out with fetch-depth: 0)"
        )
    if not prompt.changed:
        return f"{head}, unchanged"
    if not prompt.cold_known:
        return f"{head}, changed: what goes cold is not known"
    if prompt.requests and not prompt.cold_tokens:
        return f"{head}, changed behind its last full block: no token goes cold"
    return f"{head}, {prompt.cold_tokens:,} prompt tokens go cold"


def _malformed(traffic: Traffic) -> str:
    shown = [f"line {m.line}: {m.reason}" for m in traffic.malformed[:SHOWN_LINES]]
    count = traffic.malformed_count
    more = count - len(shown)
    lines = f"{count:,} malformed line{'s' * (count != 1)}"
    return f"{lines} ({'; '.join(shown)}{f'; and {more:,} more' if more else ''})"


def _counted(traffic: Traffic) -> str:
    if not traffic.counted_requests:
        return ""
    how = "counted here, without the chat template" if traffic.counts_exact else "estimated"
    if traffic.counted_requests == traffic.requests:
        return f" ({how}: no line has a usage)"
    return f" (of {_requests(traffic.counted_requests)} {how}: their lines have no usage)"


def _prompt_value(prompt: PromptTraffic, traffic: Traffic) -> dict[str, Any]:
    return {
        "prompt": prompt.name,
        "version": prompt.version,
        "changed": prompt.changed,
        "text_found": prompt.text_found,
        "by_blocks": prompt.by_blocks,
        "requests": prompt.requests,
        "request_share": _share(prompt.requests, traffic.requests),
        "prompt_tokens": prompt.prompt_tokens,
        "cold_requests": prompt.cold_requests if prompt.cold_known else None,
        "cold_tokens": prompt.cold_tokens if prompt.cold_known else None,
        "cold_token_share": (
            _share(prompt.cold_tokens, traffic.prompt_tokens) if prompt.cold_known else None
        ),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


def _requests(count: int) -> str:
    return f"{count:,} request{'s' * (count != 1)}"
