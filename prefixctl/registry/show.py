"""A version of a prompt as the model sees it, with its tokens, blocks and volatility."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prefixctl.config import Config
from prefixctl.core.blocks import Alignment
from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import Prompt
from prefixctl.errors import RegistryError
from prefixctl.ids import PromptName
from prefixctl.prompts.render import example_values, render
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.prompts.tokenize import LocalTokenizer
from prefixctl.registry.sides import resolve
from prefixctl.registry.spans import Region, Span, cut, find_regions
from prefixctl.sources.lockfile import load_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A rendered prompt.

    Attributes:
        name: The prompt.
        label: Which version.
        target: The target it was rendered for; None without one, then no token is counted.
        alignment: Its tokens and blocks on the target, for the values it was rendered with.
        governed: Whether it is long enough to be governed; None without a target.
        spans: The text in order.
    """

    name: PromptName
    label: str
    target: str | None
    alignment: Alignment | None
    governed: bool | None
    spans: tuple[Span, ...]


def show(config: Config, name: str, ref: str | None = None, *, target: str | None = None) -> Shown:
    """Render a prompt with its first examples.

    Args:
        config: The configuration.
        name: The prompt.
        ref: A number, ``live`` or ``previous``; the work tree if omitted.
        target: The target to render for; the configuration's first if omitted.

    Raises:
        UsageError: If there is no such prompt, or the reference is no version.
        RegistryError: If the version's text is not at hand.
        ConfigError, TokenizerError: If the target cannot be used.
    """
    side = resolve(config, load_lock(config.lock_path), name, ref)
    if side.prompt is None:
        raise RegistryError(
            f"the text of {name}@{side.label} is neither in the registry nor in the work tree"
        )
    chosen = target or next(iter(config.targets), None)
    if chosen is None:
        return _without_target(side.prompt, side.label)
    loaded = load_target(config, chosen)
    if isinstance(loaded.tokenizer, LocalTokenizer):
        return _on_target(config, side.prompt, side.label, loaded, loaded.tokenizer)
    return _without_target(side.prompt, side.label)


def _on_target(
    config: Config, prompt: Prompt, label: str, target: Target, tokenizer: LocalTokenizer
) -> Shown:
    def make(values: Mapping[str, str]) -> str:
        return tokenizer.render(render(prompt, values))

    values = _values(prompt, target.settings.parameters)
    text = make(values)
    ends = tokenizer.token_ends(text)
    measured = measure(prompt, target, config.prefix_cache)
    shared = min(measured.alignment.shared_tokens, len(ends))
    unit = measured.alignment.unit
    regions = find_regions(text, values, prompt.parameters, make)
    return Shown(
        name=prompt.name,
        label=label,
        target=target.name,
        alignment=Alignment(shared_tokens=shared, request_tokens=len(ends), unit=unit),
        governed=measured.governed,
        spans=tuple(cut(text, regions, ends, block_size=unit, shared_tokens=shared)),
    )


def _without_target(prompt: Prompt, label: str) -> Shown:
    def make(values: Mapping[str, str]) -> str:
        return _plain(render(prompt, values))

    values = _values(prompt, {})
    text = make(values)
    regions: list[Region] = find_regions(text, values, prompt.parameters, make)
    return Shown(
        name=prompt.name,
        label=label,
        target=None,
        alignment=None,
        governed=None,
        spans=tuple(cut(text, regions, (), block_size=1, shared_tokens=0)),
    )


def _values(prompt: Prompt, deployment: Mapping[str, str]) -> dict[str, str]:
    """A value for every parameter, those with a value of their own included."""
    fixed = {p.name: p.value for p in prompt.parameters.values() if p.value is not None}
    return {**fixed, **example_values(prompt, 0, deployment)}


def _plain(request: ChatRequest) -> str:
    """The words of a request without a chat template."""
    parts = [str(tool) for tool in request.tools or ()]
    parts += [f"[{m.get('role')}]\n{m.get('content', '')}" for m in request.messages]
    return "\n\n".join(parts)
