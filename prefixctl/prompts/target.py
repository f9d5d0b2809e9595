"""A named target, loaded: its tokenizer, its key material, and what it makes of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.config import Config, PrefixCacheConfig, TargetConfig
from prefixctl.core.blocks import Alignment, common_prefix_tokens
from prefixctl.core.keys import KeyMaterial, TargetMaterial
from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import GOVERNED_KINDS, PROMPT_FILE, Prompt, digest_of
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import PromptError
from prefixctl.ids import Digest, PrefixKey
from prefixctl.prompts.render import PROBE_VALUES, example_values, probe_values, render
from prefixctl.prompts.tokenize import RequestTokenizer, ServerTokenizer, load_tokenizer
from prefixctl.yamlfile import read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A named deployment with its tokenizer at hand."""

    name: str
    settings: TargetConfig
    material: TargetMaterial
    tokenizer: RequestTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one prompt is on one target.

    Attributes:
        alignment: Shared tokens, request tokens and cache unit, for the shortest request among
            those rendered.
        token_ids: The shared tokens themselves.
        key: The prefix key.
        governed: False for a prompt below the length threshold or below one cache unit.
    """

    alignment: Alignment
    token_ids: tuple[int, ...]
    key: PrefixKey
    governed: bool


def load_target(config: Config, name: str) -> Target:
    """Load a target of the configuration.

    Raises:
        ConfigError: If there is no such target.
        TokenizerError: If its tokenizer or chat template is missing or broken.
    """
    settings = config.target(name)
    tokenizer = _tokenizer(config, settings)
    material = TargetMaterial(
        model=settings.model,
        revision=settings.revision,
        weights_fingerprint=settings.weights_fingerprint
        or _fingerprint(config.root / settings.model),
        tokenizer_digest=tokenizer.digest,
        chat_template_digest=tokenizer.chat_template_digest,
        template_kwargs=settings.chat_template_kwargs,
        adapter_digest=settings.adapter_digest,
        dtype=settings.dtype,
        kv_dtype=settings.kv_dtype,
        block_size=settings.block_size,
        hash_algorithm=settings.hash_algorithm,
        hash_seed=settings.hash_seed,
    )
    return Target(name=name, settings=settings, material=material, tokenizer=tokenizer)


def load_targets(config: Config, names: Sequence[str] = ()) -> list[Target]:
    """The named targets, or all of the configuration. Errors as in `load_target`."""
    return [load_target(config, name) for name in (names or list(config.targets))]


def measure(prompt: Prompt, target: Target, rules: PrefixCacheConfig) -> Measurement:
    """Find the shared tokens of a prompt on a target, by rendering whole requests.

    Every pair of renders differs in every dynamic value from its first character on; the shared
    prefix is the one that all of them have in common. So the template's own text counts, and so
    do tokens that merge across the end of the static text. A section type that the rules do not
    name ends the prefix: one more render leaves it out.

    Args:
        prompt: The prompt.
        target: The target.
        rules: Section types and length threshold.

    Raises:
        PromptError: If the prompt has no dynamic value: then nothing can be told apart.
        TokenizerError: If the chat template refuses it.
    """
    if not any(p.scope.is_dynamic for p in prompt.parameters.values()):
        raise PromptError(
            "no dynamic parameter, so every request would be the same",
            path=f"{prompt.origin}/{PROMPT_FILE}",
            hint="end the prompt with a section that holds the question (scope request)",
        )
    deployment = target.settings.parameters
    renders = [
        render(prompt, probe_values(prompt, i, deployment)) for i in range(len(PROBE_VALUES))
    ]
    kinds = {s.kind for s in prompt.sections if s.kind in GOVERNED_KINDS}
    if ungoverned := kinds - set(rules.blocks):
        renders.append(render(prompt, probe_values(prompt, 0, deployment), leave_out=ungoverned))
    requests = [target.tokenizer.token_ids(r) for r in renders]
    first = requests[0]
    shared = min(common_prefix_tokens(first, other) for other in requests[1:])
    shared_ids = tuple(first[:shared])
    material = KeyMaterial(
        target=target.material,
        section_kinds=tuple(s.kind.value for s in prompt.sections),
        token_ids=shared_ids,
    )
    alignment = Alignment(
        shared_tokens=shared,
        request_tokens=min(len(r) for r in requests),
        unit=target.material.block_size,
    )
    governed = shared >= max(rules.min_tokens, alignment.unit)
    return Measurement(
        alignment=alignment, token_ids=shared_ids, key=material.prefix_key(), governed=governed
    )


def section_ends(prompt: Prompt, target: Target, measured: Measurement) -> tuple[int, ...]:
    """Where each type of section ends in the shared tokens.

    A type begins where the request without it differs from the whole one; the next one ends it.
    """
    values = probe_values(prompt, 0, target.settings.parameters)
    whole = measured.token_ids
    starts = []
    for kind in dict.fromkeys(s.kind for s in prompt.sections if s.kind in GOVERNED_KINDS):
        without = target.tokenizer.token_ids(render(prompt, values, leave_out={kind}))
        starts.append(common_prefix_tokens(whole, without))
    return tuple(sorted({*starts, len(whole)} - {min(starts, default=0), 0}))


def example_request(prompt: Prompt, target: Target, index: int) -> ChatRequest:
    """A request as a user would send it, from the ``index``-th examples."""
    return render(prompt, example_values(prompt, index, target.settings.parameters))


def _tokenizer(config: Config, settings: TargetConfig) -> RequestTokenizer:
    where = settings.tokenizer or settings.model
    if where.startswith(("http://", "https://")):
        return ServerTokenizer(HttpEngine(where, model=config.served_name(settings)))
    template = settings.chat_template
    return load_tokenizer(
        config.root / where,
        chat_template=config.root / template if template else None,
        kwargs=settings.chat_template_kwargs,
    )


def _fingerprint(model: Path) -> Digest | None:
    """Digest of a local model's config.json: tells models apart, not weights of one shape."""
    file = model / "config.json"
    return digest_of(read_bytes(file)) if file.is_file() else None
