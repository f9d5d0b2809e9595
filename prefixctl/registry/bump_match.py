"""Which governed prompt a logged request was made from, by its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix

from prefixctl.core.changes import BLOCK_DIGEST_BYTES, block_chain
from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import Prompt, Volatility
from prefixctl.core.versions import TargetRecord
from prefixctl.errors import TokenizerError
from prefixctl.prompts.conversation import Conversation, Turn, conversation_of
from prefixctl.prompts.render import PROBE_VALUES, example_values, probe_values, render
from prefixctl.prompts.target import Target
from prefixctl.prompts.tokenize import LocalTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The shareable beginning of a governed prompt.

    Attributes:
        tools: The tool schemas, as `Conversation` has them.
        whole: Messages that every request has word for word.
        role: Who says the message behind them, if its beginning is shared as well.
        start: That beginning.
    """

    tools: str = field(repr=False)
    whole: tuple[Turn, ...] = field(repr=False)
    role: str | None
    start: str = field(repr=False)

    @property
    def text(self) -> str:
        """All its words, in the order in which most templates print them."""
        return "\n".join([self.tools, *(t.text + t.rest for t in self.whole), self.start])

    def fits(self, found: Conversation) -> bool:
        """Whether a request begins with it."""
        count = len(self.whole)
        if found.tools != self.tools or found.turns[:count] != self.whole:
            return False
        if self.role is None:
            return True
        if len(found.turns) <= count:
            return False
        behind = found.turns[count]
        return behind.role == self.role and behind.text.startswith(self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The shareable beginning of a governed prompt as the lock has it: digests of its blocks.

    Attributes:
        tokenizer: Of the target.
        blocks: See `prefixctl.core.changes.block_chain`.
        block_size: Tokens in a block.
    """

    tokenizer: LocalTokenizer
    blocks: bytes = field(repr=False)
    block_size: int

    def fits(self, request: ChatRequest) -> bool:
        """Whether a request begins with all of these blocks on the target."""
        count = len(self.blocks) // BLOCK_DIGEST_BYTES * self.block_size
        try:
            ids = self.tokenizer.token_ids(request)
        except (TokenizerError, TypeError, KeyError, AttributeError, ValueError, RecursionError):
            return False  # a request that this template does not take is another one
        return block_chain(ids[:count], self.block_size) == self.blocks


def chains_of(records: Mapping[str, TargetRecord], targets: Sequence[Target]) -> tuple[Chain, ...]:
    """What requests of a version begin with, for a version whose text is not at hand."""
    return tuple(
        Chain(tokenizer=t.tokenizer, blocks=record.blocks, block_size=record.block_size)
        for t in targets
        if isinstance(t.tokenizer, LocalTokenizer)
        and (record := records.get(t.name)) is not None
        and record.blocks
    )


def patterns_of(prompt: Prompt, targets: Sequence[Target]) -> tuple[Pattern, ...]:
    """What requests of a prompt begin with: one for each set of deployment values.

    For completions, whose prompt is rendered already, there is one more for each target whose
    chat template is at hand. A prompt in which nothing is shared has none.

    Raises:
        PromptError, TokenizerError: If it cannot be rendered.
    """
    found: list[Pattern] = []
    for target in targets or (None,):
        parameters = target.settings.parameters if target else {}
        requests = [render(prompt, _values(prompt, i, parameters)) for i in range(2)]
        found.append(_shared([conversation_of(r) for r in requests]))
        found += _rendered(target, requests)
    return tuple(p for p in dict.fromkeys(found) if p.text.strip())


def shared_text(first: str, second: str) -> str:
    """What two texts have in common from their first character on."""
    return commonprefix([first, second])  # noqa: RUF071 - of texts, not of paths


def _rendered(target: Target | None, requests: Sequence[ChatRequest]) -> Iterator[Pattern]:
    if target is not None and isinstance(target.tokenizer, LocalTokenizer):
        text = shared_text(*(target.tokenizer.render(r) for r in requests))
        yield Pattern(tools="", whole=(), role="", start=text)


def _values(prompt: Prompt, index: int, parameters: Mapping[str, str]) -> dict[str, str]:
    """Values that differ in all that changes; an example where a deployment value is not known."""
    known = example_values(prompt, 0, parameters)
    given = {n: known[n] for n, p in prompt.parameters.items() if p.scope is Volatility.DEPLOYMENT}
    return probe_values(prompt, index % len(PROBE_VALUES), given)


def _shared(made: Sequence[Conversation]) -> Pattern:
    first, other = made
    count = 0
    for one, two in zip(first.turns, other.turns, strict=False):
        if one != two:
            break
        count += 1
    behind = [c.turns[count] for c in made if len(c.turns) > count]
    role = start = None
    if len(behind) == len(made) and behind[0].role == behind[1].role:
        start = shared_text(*(t.text for t in behind))
        role = behind[0].role if start else None
    tools = first.tools if first.tools == other.tools else ""
    return Pattern(tools=tools, whole=first.turns[:count], role=role, start=start or "")
