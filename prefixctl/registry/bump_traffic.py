"""How much of the traffic in a request log goes cold by an edit that lacks a bump."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from prefixctl.config import Config
from prefixctl.core.changes import Change
from prefixctl.core.versions import Lock, PrefixVersion
from prefixctl.errors import InputError, TokenizerError
from prefixctl.ids import PromptName
from prefixctl.prompts.conversation import Conversation, logged_conversation, logged_request
from prefixctl.prompts.target import Target, load_targets
from prefixctl.registry.bump import CheckResult
from prefixctl.registry.bump_match import Chain, Pattern, chains_of, patterns_of, shared_text
from prefixctl.registry.committed import committed_prompt
from prefixctl.registry.worktree import governed_prompts
from prefixctl.sources.lockfile import load_lock
from prefixctl.sources.requests import LoggedRequest, RequestLog, Style
from prefixctl.sources.traces import MalformedLine

Count = Callable[[str], int]
_KEPT_COUNTS = 1024


@dataclass(slots=True, kw_only=True)
class PromptTraffic:
    """The requests of one prompt's newest version.

    Attributes:
        name: The prompt.
        version: The newest of the lock: what the log's requests are compared with.
        changed: Whether it was edited since.
        text_found: Whether its text is at hand.
        by_blocks: Whether the lock's digests of its blocks stand for the text. Without both only
            references and keys are matched.
        requests: How many of the log are made from it.
        prompt_tokens: All their prompt tokens.
        cold_requests: Those that lose cached blocks by the edit.
        cold_tokens: Prompt tokens in these blocks: what a hit covers today and has to be computed
            once more.
        cold_known: Whether anything tells what goes cold: a target, or the text as it was. The
            two figures are 0 without.
    """

    name: PromptName
    version: int
    changed: bool
    text_found: bool
    by_blocks: bool = False
    requests: int = 0
    prompt_tokens: int = 0
    cold_requests: int = 0
    cold_tokens: int = 0
    cold_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a log says about an edit.

    Attributes:
        path: The log.
        requests: Its requests.
        prompt_tokens: All their prompt tokens.
        counted_requests: Those whose tokens the log does not give, so that they were counted here.
        counts_exact: Whether a target's tokenizer counted these, or an estimate.
        prompts: By name.
        unmatched: Requests that begin with no governed prompt.
        unmatched_tokens: Their prompt tokens.
        misnamed: Those among them that name a governed prompt and have another text.
        failed: Requests that the gateway refused or the server failed; they are no traffic.
        malformed: The first lines that are no requests.
        malformed_count: How many are none.
    """

    path: str
    requests: int
    prompt_tokens: int
    counted_requests: int
    counts_exact: bool
    prompts: tuple[PromptTraffic, ...]
    unmatched: int
    unmatched_tokens: int
    misnamed: int
    failed: int
    malformed: tuple[MalformedLine, ...] = field(repr=False)
    malformed_count: int

    @property
    def matched(self) -> int:
        """Requests that begin with a governed prompt."""
        return self.requests - self.unmatched

    @property
    def cold_unknown(self) -> tuple[PromptTraffic, ...]:
        """Prompts of which nothing tells what goes cold."""
        return tuple(p for p in self.prompts if not p.cold_known)

    @property
    def cold_requests(self) -> int:
        """Requests that lose cached blocks by the edit."""
        return sum(p.cold_requests for p in self.prompts)

    @property
    def cold_tokens(self) -> int:
        """Prompt tokens that have to be computed once more."""
        return sum(p.cold_tokens for p in self.prompts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A prompt to look for.

    Attributes:
        entry: Its newest version.
        patterns: What its requests begin with.
        chains: The same as digests of blocks, where the text is not at hand.
        cold_on: Tokens that become cold, by target name.
        cold_anywhere: What to take for them where the target is not known.
        traffic: What was found of it so far.
    """

    entry: PrefixVersion
    patterns: tuple[Pattern, ...]
    chains: tuple[Chain, ...]
    cold_on: dict[str, int]
    cold_anywhere: int
    traffic: PromptTraffic


@dataclass(slots=True)
class _Tally:
    tokens: int = 0
    counted: int = 0
    unmatched: int = 0
    unmatched_tokens: int = 0
    misnamed: int = 0
    refused: int = 0
    failed: int = 0


def traffic_of(
    config: Config, result: CheckResult, path: Path, *, count: Count, exact: bool
) -> Traffic:
    """Read a log and tell which of its requests an edit makes cold.

    Args:
        config: The configuration.
        result: What the check found; only its prompts are looked for.
        path: The log, see `prefixctl.sources.requests`.
        count: Counts the tokens of requests whose usage is not logged.
        exact: Whether these counts are a tokenizer's.

    Raises:
        InputError: If the log cannot be read.
        NothingToDoError: If no line of it is a request.
    """
    targets = load_targets(config)
    known = _known(config, result, targets, count)
    counted = lru_cache(maxsize=_KEPT_COUNTS)(count)
    log, tally = RequestLog(path), _Tally()
    for request in log:
        if request.was_refused:
            tally.failed += 1
            continue
        tokens = request.prompt_tokens
        try:
            said = logged_conversation(request)
            own = _counted(said, counted) if tokens is None else 0
        except (ValueError, RecursionError, TokenizerError) as exc:
            reason = "nested too deeply" if isinstance(exc, RecursionError) else str(exc)
            log.refuse(request.line, reason)
            tally.refused += 1
            continue
        found, expanded = _match(request, said, known)
        if tokens is None:
            tally.counted += 1
            tokens = own + (_prefix_tokens(found.entry) if found and expanded else 0)
        tally.tokens += tokens
        if found is not None:
            _add(found, tokens, _target(config, request, targets))
            continue
        tally.unmatched += 1
        tally.unmatched_tokens += tokens
        tally.misnamed += _named(request, known) is not None
    if log.requests == tally.refused + tally.failed:
        raise log.nothing()
    return Traffic(
        path=str(path),
        requests=log.requests - tally.refused - tally.failed,
        prompt_tokens=tally.tokens,
        counted_requests=tally.counted,
        counts_exact=exact,
        prompts=tuple(k.traffic for k in known),
        unmatched=tally.unmatched,
        unmatched_tokens=tally.unmatched_tokens,
        misnamed=tally.misnamed,
        failed=tally.failed,
        malformed=tuple(log.malformed),
        malformed_count=log.malformed_count,
    )


def _known(
    config: Config, result: CheckResult, targets: Sequence[Target], count: Count
) -> list[_Known]:
    lock = load_lock(config.lock_path)
    changes = {d.name: d.change for d in result.drifts}
    names = [n for n in (*result.unchanged, *changes, *result.gone) if lock.newest(n)]
    here = [n for n in names if n not in result.gone]
    tree = {p.name: p for p in governed_prompts(config, here)} if here else {}
    made = []
    for name in sorted(names):
        prompt = tree.get(name)
        folder = Path(prompt.origin) if prompt else None
        old = _patterns(config, lock, name, folder, targets)
        change = changes.get(name)
        cold_on = {t.target: t.cold_tokens for t in change.targets} if change else {}
        anywhere = max(cold_on.values(), default=0)
        if change and not targets and prompt is not None:
            anywhere = _cold_text(old, patterns_of(prompt, ()), count)
        entry = lock.prompts[name][-1]
        chains = chains_of(entry.targets, targets) if old is None else ()
        traffic = PromptTraffic(
            name=name,
            version=entry.version,
            changed=_changed(change),
            text_found=old is not None,
            by_blocks=bool(chains),
            cold_known=not _changed(change) or bool(targets) or old is not None,
        )
        made.append(
            _Known(
                entry=entry,
                patterns=old or (),
                chains=chains,
                cold_on=cold_on,
                cold_anywhere=anywhere,
                traffic=traffic,
            )
        )
    return made


def _changed(change: Change | None) -> bool:
    return change is not None and bool(change)


def _patterns(
    config: Config, lock: Lock, name: PromptName, folder: Path | None, targets: Sequence[Target]
) -> tuple[Pattern, ...] | None:
    prompt = committed_prompt(config, lock, name, folder)
    try:
        return None if prompt is None else patterns_of(prompt, targets)
    except InputError:
        return None


def _cold_text(old: Sequence[Pattern] | None, new: Sequence[Pattern], count: Count) -> int:
    """About how many shared tokens stand behind the first character that differs."""
    if not old:
        return 0
    before, after = old[0].text, new[0].text if new else ""
    return count(before[len(shared_text(before, after)) :])


def _match(
    request: LoggedRequest, said: Conversation, known: Sequence[_Known]
) -> tuple[_Known | None, bool]:
    """The prompt that a request is made from, and whether only its reference says so.

    Text decides. A reference alone counts where the server adds the text itself, and where it is
    the key of the very content.
    """
    fitting = [(len(p.text), k) for k in known for p in k.patterns if p.fits(said)]
    named = _named(request, known)
    if fitting:
        longest = max(length for length, _ in fitting)
        best = [k for length, k in fitting if length == longest]
        return (named if named in best else best[0]), False
    if (found := _by_blocks(request, known)) is not None:
        return found, False
    if named is None:
        return None, False
    reference = request.reference or ""
    without_text = request.style in {Style.NAMED, Style.GATEWAY}
    expanded = without_text or "prefix_key" in request.body
    by_key = any(t.key == reference for t in named.entry.targets.values())
    return (named if expanded or by_key else None), expanded


def _by_blocks(request: LoggedRequest, known: Sequence[_Known]) -> _Known | None:
    """The prompt with the most blocks that a request begins with, of those without a text."""
    wanted = [(len(c.blocks), k, c) for k in known for c in k.chains]
    made = logged_request(request) if wanted else None
    if made is None:
        return None
    longest_first = sorted(wanted, key=lambda w: w[0], reverse=True)
    return next((k for _, k, chain in longest_first if chain.fits(made)), None)


def _named(request: LoggedRequest, known: Sequence[_Known]) -> _Known | None:
    """The prompt whose newest version a request names, by name or by key."""
    reference = request.reference
    if reference is None:
        return None
    name, _, version = reference.partition("@")
    for one in known:
        if any(t.key == reference for t in one.entry.targets.values()):
            return one
        if name == one.traffic.name and version in {"", "live", str(one.entry.version)}:
            return one
    return None


def _counted(said: Conversation, count: Count) -> int:
    texts = [said.tools, *(t.text + t.rest for t in said.turns)]
    return sum(count(t) for t in texts if t)


def _prefix_tokens(entry: PrefixVersion) -> int:
    return max((t.shared_tokens for t in entry.targets.values()), default=0)


def _target(config: Config, request: LoggedRequest, targets: Sequence[Target]) -> str | None:
    """The target that a request went to, by its model; the only one if there is one."""
    if len(targets) == 1:
        return targets[0].name
    for target in targets:
        if request.model in {target.settings.model, config.served_name(target.settings)}:
            return target.name
    return None


def _add(known: _Known, tokens: int, target: str | None) -> None:
    cold = known.cold_anywhere if target is None else known.cold_on.get(target, 0)
    cold = min(cold, tokens)
    traffic = known.traffic
    traffic.requests += 1
    traffic.prompt_tokens += tokens
    traffic.cold_requests += cold > 0
    traffic.cold_tokens += cold
