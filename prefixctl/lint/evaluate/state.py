"""What is known while one template is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Parameter, Volatility
from prefixctl.lint.evaluate import clocks
from prefixctl.lint.evaluate.frames import Scope
from prefixctl.lint.evaluate.names import cause_of, guess_path
from prefixctl.lint.evaluate.syntax import Template
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    hole_value,
    map_causes,
    text_value,
)
from prefixctl.lint.source import UnreadableError

MAX_STEPS = 50_000
"""Nodes that are read at most; a template that needs more was made to have no end."""
MAX_PATH_CHARS = 200
CONVERSATION_NAME = "messages"

Loader = Callable[[str], str | None]
"""The source of an included template, or None."""

_KEPT = frozenset(
    [
        CauseKind.CONVERSATION,
        CauseKind.SYSTEM,
        CauseKind.POSITION,
        CauseKind.ORDER,
        CauseKind.RANDOM,
    ]
)
_OF_A_SCOPE = {
    Volatility.DEPLOYMENT: CauseKind.DEPLOYMENT,
    Volatility.TENANT: CauseKind.TENANT,
    Volatility.USER: CauseKind.USER,
    Volatility.SESSION: CauseKind.SESSION,
    Volatility.REQUEST: CauseKind.REQUEST,
}


def no_template(name: str) -> str | None:  # noqa: ARG001 - a Loader
    """A loader that knows no template."""
    return None


@dataclass(slots=True)
class State:
    """The state of one reading.

    Attributes:
        template: What is read now.
        main: The template of the file itself, in which places are known.
        chat: Whether ``messages`` is the conversation, as in a model's chat template.
        parameters: Declared parameters; they go before what a name says.
        loader: Finds included templates.
        scope: The variables.
        run: Reads statements; set by `statements`, which the expressions know only by this.
        parent_block: Reads ``super()``, in the same way.
        own_block: Reads ``self.name()``.
        role: The role of the message that a condition has picked: system or retrieved.
        turns: How many loops over the conversation are open.
        loops: How many loops are open.
        calls: What names the macros and templates that are open.
        blocks: The versions of a block, that of the outermost child first.
        block: The block that is open, and which version of it.
        top: How many frames a template's own top level has.
        isolated: Whether what is read sees none of the variables that a request brings.
        deciding: The holes of the conditions that are open.
        leaving: The holes on which it depends whether the rounds of a loop go on.
        steps: Nodes read so far.
    """

    template: Template
    main: Template
    chat: bool
    parameters: Mapping[str, Parameter]
    loader: Loader
    run: Callable[[State, list[nodes.Node]], Value]
    parent_block: Callable[[State], Value]
    own_block: Callable[[State, str], Value]
    scope: Scope = field(default_factory=Scope)
    role: str = ""
    turns: int = 0
    loops: int = 0
    calls: tuple[object, ...] = ()
    blocks: dict[str, list[tuple[nodes.Block, Template]]] = field(default_factory=dict)
    block: tuple[str, int] = ("", 0)
    top: int = 1
    isolated: bool = False
    deciding: tuple[Hole, ...] = ()
    leaving: tuple[Hole, ...] = ()
    steps: int = 0

    def step(self) -> None:
        """Count one node.

        Raises:
            UnreadableError: Beyond the limit.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise UnreadableError(
                f"takes more than {MAX_STEPS:,} steps to read",
                advice="split the template; macros that call one another multiply",
            )

    def run_in(self, template: Template, body: list[nodes.Node]) -> Value:
        """The output of statements of another template."""
        outer, self.template = self.template, template
        try:
            return self.run(self, body)
        finally:
            self.template = outer

    def external(self, name: str, line: int, *, called: bool = False) -> Value:
        """A variable that the template does not set; functions are seen by all templates."""
        if self.isolated and not called:
            return EMPTY
        if self.chat and name == CONVERSATION_NAME:
            cause = Cause(
                name, CauseKind.CONVERSATION, None, Confidence.HIGH, "it is the conversation"
            )
        elif name in self.parameters:
            parameter = self.parameters[name]
            if parameter.value is not None:
                return text_value(parameter.value)
            cause = declared(parameter)
        else:
            cause = cause_of(name)
        return hole_value(Hole(cause, Site(line, name)))


def declared(parameter: Parameter) -> Cause:
    """The cause that a declared parameter is. A name may only tell a random id from a question."""
    kind = CauseKind.CLOCK if parameter.scope.is_clock else _OF_A_SCOPE.get(parameter.scope)
    if kind is CauseKind.REQUEST and guess_path(parameter.name).kind is CauseKind.RANDOM:
        kind = CauseKind.RANDOM
    return Cause(
        parameter.name,
        kind or CauseKind.SETTLED,
        parameter.scope,
        Confidence.HIGH,
        f"it is declared with scope {parameter.scope.label}",
        fixed=True,
    )


def attribute_of(value: Value, name: str) -> Value:
    """A value's attribute: the path grows, and the name of the attribute is heard."""
    cut = clocks.attribute(value, name)
    return map_causes(value if cut is None else cut, lambda cause: _extended(cause, name))


def _extended(cause: Cause, name: str) -> Cause:
    if cause.kind is CauseKind.CLOCK and cause.fixed:
        return cause
    path = f"{cause.variable}.{name}"
    if len(path) > MAX_PATH_CHARS:
        return cause
    if cause.fixed or cause.kind in _KEPT:
        return replace(cause, variable=path)
    return cause_of(path)
