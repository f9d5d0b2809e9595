"""What a call in Python code prints: clocks, random values, formatting, joining."""

from __future__ import annotations

import ast
from dataclasses import replace

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate import clocks, order
from prefixctl.lint.evaluate.printf import BRACES, fill
from prefixctl.lint.evaluate.python_code import (
    Env,
    dotted,
    evaluate,
    hole_at,
    named,
)
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Part,
    Value,
    concat,
    hole_value,
    holes_value,
    map_causes,
)

_CLOCKS = frozenset(
    ["datetime.now", "datetime.utcnow", "datetime.today", "datetime.datetime.now", "dt.now",
     "datetime.datetime.utcnow", "datetime.datetime.today", "dt.datetime.now", "time.time",
     "dt.datetime.utcnow", "time.strftime", "time.ctime", "time.asctime", "time.time_ns",
     "time.localtime", "time.gmtime", "pendulum.now", "arrow.now", "arrow.utcnow",
     "timezone.now", "Timestamp.now", "pd.Timestamp.now", "utcnow", "now"]
)  # fmt: skip
_DAYS = frozenset(["date.today", "datetime.date.today", "dt.date.today", "pendulum.today"])
_RANDOM = ("uuid.uuid1", "uuid.uuid4", "uuid4", "uuid1", "secrets.", "random.", "os.urandom",
           "token_hex", "randint", "np.random.", "ulid.", "nanoid.")  # fmt: skip
_KNOWN = {
    "os.getcwd": Volatility.SESSION,
    "Path.cwd": Volatility.SESSION,
    "getpass.getuser": Volatility.USER,
    "os.getlogin": Volatility.USER,
    "socket.gethostname": Volatility.DEPLOYMENT,
    "platform.node": Volatility.DEPLOYMENT,
    "platform.system": Volatility.DEPLOYMENT,
    "platform.platform": Volatility.DEPLOYMENT,
}
_KINDS = {
    Volatility.SESSION: CauseKind.SESSION,
    Volatility.USER: CauseKind.USER,
    Volatility.DEPLOYMENT: CauseKind.DEPLOYMENT,
}
_SAME = frozenset(
    ["strip", "lstrip", "rstrip", "replace", "upper", "lower", "title", "encode", "decode",
     "removeprefix", "removesuffix", "expandtabs", "splitlines", "split"]
)  # fmt: skip
_WRAPPERS = frozenset(
    ["dedent", "cleandoc", "str", "repr", "Template", "from_template", "PromptTemplate", "Prompt",
     "format_map", "trim", "indent", "clean", "markdown", "RichPromptTemplate", "PromptBuilder",
     "from_string", "SystemMessage", "HumanMessage", "AIMessage", "ChatMessage", "from_system",
     "from_user", "Text", "fill", "sorted", "list", "tuple", "reversed", "enumerate", "zip"]
)  # fmt: skip
_TEXT_KEYS = ("template", "content", "text", "prompt", "format_string", "system_prompt")
_FILLING = frozenset(["format", "format_map", "substitute", "safe_substitute", "format_messages"])
MEMBERS = frozenset(["items", "keys", "values"])
"""Methods that list a mapping in the order of its keys."""
_COUNTING = frozenset(["len", "sum", "min", "max", "any", "all", "bool"])
_CUT = {"date": Volatility.DAY, "today": Volatility.DAY}


def call_value(env: Env, node: ast.Call) -> Value:
    """What a call prints."""
    name = dotted(node.func)
    own = _computed(env, node, name)
    if own is None and isinstance(node.func, ast.Attribute):
        own = _method(env, node, node.func)
    if own is not None:
        return own
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else name
    if attribute in _WRAPPERS:
        wrapped = _wrapped(env, node)
        return map_causes(wrapped, order.put_in_order) if attribute == "sorted" else wrapped
    return _of_arguments(env, node, name, attribute)


def _of_arguments(env: Env, node: ast.Call, name: str, attribute: str) -> Value:
    """What a call prints that only its name and its arguments tell."""
    arguments = _arguments(env, node)
    if attribute in _COUNTING:
        arguments = map_causes(arguments, order.counted)
    if attribute in {"set", "frozenset"} or name in {"os.listdir", "glob.glob"}:
        return map_causes(arguments, order.set_unordered)
    if attribute == "dumps" and not _sorts_keys(node):
        if node.args and _has_own_order(env, node.args[0]):
            return arguments
        return map_causes(arguments, order.mapping_unordered)
    guess = named(env, node, name) if name else EMPTY
    known = any(h.cause.volatility is not None for h in guess.holes)
    return arguments if not name or (arguments.holes and not known) else guess


def _computed(env: Env, node: ast.Call, name: str) -> Value | None:
    """A value that the call reads from a clock, a random source or the machine."""
    if name in _DAYS:
        return hole_at(env, node, _clock(name, Volatility.DAY))
    if name in _CLOCKS:
        value = hole_at(env, node, _clock(name, Volatility.SECOND))
        return clocks.formatted(value, _pattern(node)) if name.endswith("strftime") else value
    if name.startswith(_RANDOM) or name in _RANDOM:
        cause = Cause(f"{name}()", CauseKind.RANDOM, Volatility.REQUEST, Confidence.HIGH,
                      "it draws a random value", fixed=True)  # fmt: skip
        return hole_at(env, node, cause)
    volatility = _KNOWN.get(name)
    if volatility is None:
        return None
    cause = Cause(f"{name}()", _KINDS[volatility], volatility, Confidence.MEDIUM,
                  "it asks the machine", fixed=True)  # fmt: skip
    return hole_at(env, node, cause)


def _clock(name: str, volatility: Volatility) -> Cause:
    return Cause(f"{name}()", CauseKind.CLOCK, volatility, Confidence.HIGH, "it reads the clock",
                 fixed=True)  # fmt: skip


def _pattern(node: ast.Call) -> str | None:
    texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return next((t for t in texts if "%" in t), None)


def _method(env: Env, node: ast.Call, callee: ast.Attribute) -> Value | None:
    """A method of a string, a list of strings or a clock; None for any other."""
    name = callee.attr
    if name == "join" and node.args:
        return _joined(env, evaluate(env, callee.value), node.args[0])
    if name in _FILLING:
        return _filled(evaluate(env, callee.value), _given(env, node))
    if name in _SAME:
        return evaluate(env, callee.value)
    if name in MEMBERS and not node.args:
        listed = evaluate(env, callee.value)
        own = _has_own_order(env, callee.value)
        return listed if own else map_causes(listed, order.mapping_unordered)
    base = evaluate(env, callee.value) if isinstance(callee.value, ast.Call | ast.Name) else EMPTY
    if any(h.cause.kind is CauseKind.CLOCK for h in base.holes):
        return _of_clock(base, node, name)
    return None


def _has_own_order(env: Env, node: ast.expr) -> bool:
    """Whether the file itself writes the mapping down."""
    return isinstance(node, ast.Dict) or dotted(node).rsplit(".", 1)[-1] in env.own


def _joined(env: Env, separator: Value, items: ast.expr) -> Value:
    if not isinstance(items, ast.List | ast.Tuple):
        return evaluate(env, items)
    return concat([v for e in items.elts for v in (separator, evaluate(env, e))][1:])


def _of_clock(clock: Value, node: ast.Call, name: str) -> Value:
    if name == "strftime":
        return clocks.formatted(clock, _pattern(node))
    if name in _CUT:
        return clocks.coarser(clock, _CUT[name], f"'.{name}()' is all that it shows")
    return clock


def _given(env: Env, node: ast.Call) -> dict[str, Value]:
    """The values of keywords, and of positions by their number."""
    given = {k.arg: evaluate(env, k.value) for k in node.keywords if k.arg}
    given |= {str(i): evaluate(env, a) for i, a in enumerate(node.args)}
    return given


def _filled(template: Value, given: dict[str, Value]) -> Value:
    """A template with its placeholders filled: what is given says more than a placeholder's name.

    The place stays the placeholder's, since the text around it is there.
    """

    def known(hole: Hole) -> Value:
        value = given.get(hole.cause.variable.split(".")[0])
        if value is None:
            return hole_value(hole)
        if not value.holes:
            return value
        causes = [h.cause for h in value.holes if h.cause.volatility is not None]
        if not causes:
            return hole_value(hole)
        return holes_value(replace(hole, cause=c) for c in causes)

    ordered = iter([v for n, v in given.items() if n.isdigit()])
    template = fill(template, BRACES, lambda n: given.get(n, EMPTY) if n else next(ordered, EMPTY))
    if not given or not template.holes:
        return template
    parts: list[Part] = []
    for part in template.parts:
        parts += known(part).parts if isinstance(part, Hole) else (part,)
    holes = tuple(p for p in parts if isinstance(p, Hole))
    distinct = tuple(dict.fromkeys((*holes, *_deeper(template))))
    return Value(tuple(parts), distinct, len(parts), template.deciding)


def _deeper(value: Value) -> list[Hole]:
    shallow = {p for p in value.parts if isinstance(p, Hole)}
    return [h for h in value.holes if h not in shallow]


def _wrapped(env: Env, node: ast.Call) -> Value:
    """A call that prints its text argument."""
    for keyword in node.keywords:
        if keyword.arg in _TEXT_KEYS:
            return evaluate(env, keyword.value)
    return evaluate(env, node.args[0]) if node.args else EMPTY


def _sorts_keys(node: ast.Call) -> bool:
    return any(
        k.arg == "sort_keys" and isinstance(k.value, ast.Constant) and bool(k.value.value)
        for k in node.keywords
    )


def _arguments(env: Env, node: ast.Call) -> Value:
    values = [evaluate(env, a) for a in node.args]
    values += [evaluate(env, k.value) for k in node.keywords]
    return holes_value(h for v in values for h in v.holes)
