"""The governed prompts in the work tree, and what they are on the configured targets."""

from __future__ import annotations

from collections.abc import Sequence

from prefixctl.config import Config
from prefixctl.core.changes import block_chain, material_record
from prefixctl.core.prompt import Prompt, Volatility
from prefixctl.core.versions import TargetRecord
from prefixctl.errors import ConfigError, NothingToDoError, PromptError, UsageError
from prefixctl.ids import PromptName
from prefixctl.prompts.load import find_prompts, load_prompt
from prefixctl.prompts.target import Measurement, Target, load_targets, measure
from prefixctl.yamlfile import did_you_mean


def governed_prompts(config: Config, names: Sequence[str] = ()) -> list[Prompt]:
    """The named prompts of the work tree, or all of them, by name.

    A broken prompt that was not asked for is no obstacle to the others.

    Raises:
        NothingToDoError: If there is no governed prompt.
        PromptError: If a prompt is broken, or two have one name.
        UsageError: If there is no prompt of a given name.
    """
    found: dict[PromptName, Prompt] = {}
    broken: list[PromptError] = []
    for folder in find_prompts(config.prompts_dir):
        try:
            prompt = load_prompt(folder)
        except PromptError as exc:
            if not names or folder.name in names:
                raise
            broken.append(exc)
            continue
        if prompt.name in found:
            raise PromptError(
                f"'{prompt.name}' is the name of {found[prompt.name].origin} as well",
                path=prompt.origin,
                hint="give one of them another `name:`",
            )
        found[prompt.name] = prompt
    missing = [n for n in names if n not in found]
    if missing and broken:
        raise broken[0]
    if missing:
        raise unknown_prompt(missing[0], list(found))
    return [found[n] for n in sorted(found) if not names or n in names]


def find_prompt(config: Config, name: str) -> Prompt | None:
    """The prompt of that name in the work tree, or None. Errors as in `governed_prompts`."""
    try:
        return governed_prompts(config, [name])[0]
    except (NothingToDoError, UsageError):
        return None


def refuse_unknown_parameters(config: Config, prompts: Sequence[Prompt]) -> None:
    """Refuse a target's parameter that no prompt has: it is a typo, and would be left unused.

    Raises:
        ConfigError: With the nearest name.
    """
    known = sorted(
        {p.name for x in prompts for p in x.parameters.values() if p.scope is Volatility.DEPLOYMENT}
    )
    for name, target in config.targets.items():
        for parameter in target.parameters:
            if parameter not in known:
                raise ConfigError(
                    f"targets.{name}.parameters: no prompt has a deployment parameter "
                    f"'{parameter}'",
                    path=config.path,
                    hint=did_you_mean(parameter, known) or "take it out",
                )


def unknown_prompt(name: str, known: Sequence[str]) -> UsageError:
    """The error for a name that no prompt has, with the nearest one."""
    return UsageError(f"no prompt '{name}'", hint=did_you_mean(name, list(known)))


def target_records(
    config: Config, prompt: Prompt, targets: Sequence[Target] | None = None
) -> dict[str, TargetRecord]:
    """What a prompt is on the given targets, or on all of the configuration, by target name.

    Raises:
        ConfigError, PromptError, TokenizerError: As `load_targets` and `measure`.
    """
    loaded = load_targets(config) if targets is None else targets
    return {t.name: record_of(t, measure(prompt, t, config.prefix_cache)) for t in loaded}


def record_of(target: Target, measured: Measurement) -> TargetRecord:
    """What a version records of a measurement."""
    alignment = measured.alignment
    return TargetRecord(
        key=measured.key,
        shared_tokens=alignment.shared_tokens,
        request_tokens=alignment.request_tokens,
        block_size=alignment.unit,
        full_blocks=alignment.full_blocks,
        expected_hit_tokens=alignment.expected_hit_tokens,
        governed=measured.governed,
        material=material_record(target.material),
        blocks=block_chain(measured.token_ids, alignment.unit),
    )
