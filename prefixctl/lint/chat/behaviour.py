"""What rendering shows of a chat template: the conclusions, typed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prefixctl.prompts.sandbox import Failure


class Clock(StrEnum):
    """The finest clock that reaches the text. A coarser one than a day counts as a day."""

    NONE = "none"
    SECOND = "second"
    MINUTE = "minute"
    DAY = "day"
    NOT_EMITTED = "called-not-emitted"
    ERR = "err"


class Shared(StrEnum):
    """Whether two requests with the same system text share it."""

    YES = "yes"
    NO = "NO"
    ERR = "err"


class MultiTurn(StrEnum):
    """How a turn continues the one before it."""

    FULL = "full"
    GEN_PROMPT_DIFFERS = "gen-prompt-differs"
    REWRITES = "REWRITES"
    ERR = "err"


class Reasoning(StrEnum):
    """What happens to ``reasoning_content`` once a user turn follows."""

    KEPT = "kept"
    DROPPED = "dropped-on-next-user-turn"
    NEVER = "never-rendered"
    ERR = "err"


class InlineThink(StrEnum):
    """What happens to ``<think>`` text in an assistant message once a user turn follows."""

    KEPT = "kept"
    DROPPED = "dropped-in-history"
    STRIPPED = "stripped-always"
    ERR = "err"


class Tools(StrEnum):
    """Where tool schemas stand."""

    IGNORED = "ignored"
    SHARED = "shared"
    AFTER_USER_TEXT = "AFTER-USER-TEXT"
    ERR = "err"


class ToolsMultiTurn(StrEnum):
    """Whether the text of turn 1, tools included, stays when turn 2 is added."""

    STABLE = "stable"
    MOVES = "MOVES"
    ERR = "err"


class Order(StrEnum):
    """Whether the order in which a client sends things reaches the text."""

    NORMALISED = "normalised"
    SENSITIVE = "sensitive"
    ERR = "err"


class EmitsBos(StrEnum):
    """Whether the template prints the BOS token itself."""

    YES = "yes"
    NO = "no"
    ERR = "err"


class SysTrim(StrEnum):
    """What happens to white space around the system text."""

    KEEPS = "keeps-whitespace"
    TRIMS = "trims"


class Note(StrEnum):
    """What else there is to know of the system text."""

    NO_SYSTEM_ROLE = "no-system-role"
    SYSTEM_DROPPED = "system-dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How the text of one turn agrees with the text of the next.

    Attributes:
        shared_chars: Characters from the start that both have in common.
        turn_chars: Characters of the earlier turn without the opening of the assistant's answer.
        opened_chars: The same with it.
        content_chars: Characters up to the end of what the earlier turn was given: user text,
            system text and tools, whichever ends last; all of them where none is found.
    """

    shared_chars: int
    turn_chars: int
    opened_chars: int
    content_chars: int

    @property
    def kind(self) -> MultiTurn:
        """How much of the earlier turn stays."""
        if self.shared_chars >= self.opened_chars:
            return MultiTurn.FULL
        if self.shared_chars >= self.turn_chars:
            return MultiTurn.GEN_PROMPT_DIFFERS
        return MultiTurn.REWRITES

    @property
    def changes_content(self) -> bool:
        """Whether what was given changes, and not only the template's own words behind it."""
        return self.shared_chars < min(self.content_chars, self.turn_chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A conversation that the template does not render.

    Attributes:
        field: The field of `ChatBehaviour` that it was for.
        message: What the template said.
    """

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBehaviour:
    """What a chat template does to the shared prefix.

    A field that does not apply (the order of tools that are ignored) is None.

    Attributes:
        clock_sys: The clock in the text of a request with a system message.
        clock_nosys: The same without one.
        clock_tools: The same with tools.
        sys_shared: Whether the system text is shared between two questions.
        multi_turn: How turn 2 continues turn 1.
        reasoning: What happens to earlier reasoning.
        inline_think: What happens to earlier ``<think>`` text.
        tools: Where tool schemas stand.
        tools_multi_turn: Whether they stay there when a turn is added.
        tools_key_order: Whether the order of JSON keys matters.
        tools_list_order: Whether the order of the tools matters.
        emits_bos: Whether the BOS token is printed.
        sys_trim: Whether white space around the system text stays.
        note: About the system text.
        failure: Why a plain request cannot be rendered, if so; nothing else is known then.
        shows_user: Whether the user's text is printed at all; no chat template leaves it out.
        needs_tools: Whether a request without tools is refused, since a server passes none then.
        later_turns: How turns 3 and 4 continue those before them: the worse of the two.
        clock_formats: The formats with which the time is asked for.
        turns: The measures behind ``multi_turn`` and ``later_turns``, turn by turn.
        tool_turn: The measure behind ``tools_multi_turn``.
        refusals: What the template said to conversations that it refused, by field.
    """

    clock_sys: Clock = Clock.ERR
    clock_nosys: Clock = Clock.ERR
    clock_tools: Clock = Clock.ERR
    sys_shared: Shared = Shared.ERR
    multi_turn: MultiTurn = MultiTurn.ERR
    reasoning: Reasoning = Reasoning.ERR
    inline_think: InlineThink = InlineThink.ERR
    tools: Tools = Tools.ERR
    tools_multi_turn: ToolsMultiTurn | None = None
    tools_key_order: Order | None = None
    tools_list_order: Order | None = None
    emits_bos: EmitsBos = EmitsBos.ERR
    sys_trim: SysTrim | None = None
    note: Note | None = None
    failure: Failure | None = None
    shows_user: bool = False
    needs_tools: bool = False
    later_turns: MultiTurn | None = None
    clock_formats: tuple[str, ...] = ()
    turns: tuple[Continuation, ...] = ()
    tool_turn: Continuation | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def rewrites_history(self) -> bool:
        """Whether system text, or what was said in an earlier turn, changes or moves."""
        return any(t.changes_content for t in self.turns)

    @property
    def moves_tools(self) -> bool:
        """Whether tools, or what stands before the end of the user's text, move."""
        return self.tool_turn is not None and self.tool_turn.changes_content

    @property
    def breaks(self) -> bool:
        """Whether a conversation loses its prefix from turn to turn."""
        return self.rewrites_history or self.moves_tools
