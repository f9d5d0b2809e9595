"""How `show` prints a prompt: colours for volatility, marks for blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixctl.cli.output import clean, out, talk
from prefixctl.cli.versions_view import SCHEMA
from prefixctl.core.prompt import Volatility

if TYPE_CHECKING:
    from rich.text import Text

    from prefixctl.registry.show import Shown

STYLES = {
    Volatility.CONSTANT: "",
    Volatility.VERSION: "green",
    Volatility.DEPLOYMENT: "green",
    Volatility.TENANT: "yellow",
    Volatility.DAY: "yellow",
    Volatility.HOUR: "yellow",
}
DYNAMIC_STYLE = "bold red"


def shown_value(shown: Shown) -> dict[str, Any]:
    """A shown prompt as JSON."""
    alignment = shown.alignment
    return {
        "schema": SCHEMA,
        "prompt": shown.name,
        "version": shown.label,
        "target": shown.target,
        "governed": shown.governed,
        "shared_tokens": alignment.shared_tokens if alignment else None,
        "request_tokens": alignment.request_tokens if alignment else None,
        "block_size": alignment.unit if alignment else None,
        "full_blocks": alignment.full_blocks if alignment else None,
        "tail_tokens": alignment.tail_tokens if alignment else None,
        "expected_hit_tokens": alignment.expected_hit_tokens if alignment else None,
        "spans": [
            {
                "text": s.text,
                "volatility": s.volatility.label,
                "token": s.token if alignment else None,
                "block": s.block,
                "ends_shared": s.ends_shared,
            }
            for s in shown.spans
        ],
    }


def print_shown(shown: Shown) -> None:
    """A shown prompt as text; what the colours and marks mean goes to stderr."""
    out().print(_text(shown))
    values = ", ".join(v.label for v in sorted({s.volatility for s in shown.spans}))
    talk().print(f"{shown.name} ({shown.label}); values: {values}", markup=False)
    if shown.alignment is None:
        talk().print("no target in prefixctl.yaml, so no tokens and blocks")
        return
    talk().print(f"target {shown.target}: {shown.alignment.explain()}", markup=False)
    if shown.governed is False:
        talk().print("too short to be governed")


def _text(shown: Shown) -> Text:
    from rich.text import Text

    text = Text()
    for span in shown.spans:
        style = STYLES.get(span.volatility, DYNAMIC_STYLE)
        text.append(clean(span.text), style)
        if span.block is not None:
            text.append(f"▕{span.block}▏", "reverse")
        if span.ends_shared and shown.alignment is not None:
            tokens = shown.alignment.shared_tokens
            text.append(f"▕end of the shared prefix, {tokens:,} tokens▏", "bold reverse")
    return text
