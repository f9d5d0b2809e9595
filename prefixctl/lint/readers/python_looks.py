"""What Python expressions look like: strings, lists of messages, calls that print for people."""

from __future__ import annotations

import ast

_TEXT_METHODS = frozenset(["format", "join", "strip", "lstrip", "rstrip", "replace", "substitute",
                           "format_map"])  # fmt: skip
_TEXT_CALLS = frozenset(
    ["dedent", "cleandoc", "Template", "from_template", "PromptTemplate", "from_string",
     "PromptBuilder", "RichPromptTemplate", "Prompt"]
)  # fmt: skip
SILENT_CALLS = frozenset(
    ["print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log",
     "add_argument", "echo", "secho", "Option", "Argument", "Field", "getLogger", "compile", "sub",
     "match", "execute", "fail", "skip", "deprecated", "add_parser", "ArgumentParser", "success",
     "write", "title", "header", "markdown"]
)  # fmt: skip
"""Calls whose text is for people, for a database or for a pattern."""
SILENT_KEYWORDS = frozenset(["help", "description", "doc", "desc", "epilog", "title", "label"])
_ROLES = frozenset(["system", "human", "user", "ai", "assistant", "developer", "placeholder"])
_MESSAGE_CALLS = frozenset(
    ["SystemMessage", "HumanMessage", "AIMessage", "UserMessage", "AssistantMessage",
     "ChatMessage", "SystemMessagePromptTemplate", "HumanMessagePromptTemplate", "from_system",
     "from_user", "MessagesPlaceholder", "from_template"]
)  # fmt: skip
_MESSAGE_KEYS = frozenset(["content", "prompt", "variable_name"])


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def is_text(node: ast.expr) -> bool:
    """Whether an expression makes a string, by its looks."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.IfExp):
        return is_text(node.body) or is_text(node.orelse)
    if isinstance(node, ast.BinOp):
        return _is_text_operation(node)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _is_text_call(node))


def _is_text_operation(node: ast.BinOp) -> bool:
    if isinstance(node.op, ast.Mod):
        return is_text(node.left)
    return isinstance(node.op, ast.Add) and (is_text(node.right) or is_text(node.left))


def _is_text_call(node: ast.Call) -> bool:
    name = called(node)
    if isinstance(node.func, ast.Attribute) and name in _TEXT_METHODS:
        return is_text(node.func.value)
    given = (*node.args[:1], *(k.value for k in node.keywords))
    return name in _TEXT_CALLS and any(is_text(a) for a in given)


def messages_of(node: ast.expr) -> ast.expr | None:
    """The texts of a list of messages, one behind the other, or None for anything else."""
    if not isinstance(node, ast.List | ast.Tuple) or not node.elts:
        return None
    texts = [t for e in node.elts if (t := _message_text(e)) is not None]
    if len(texts) < len(node.elts):
        return None
    return ast.copy_location(ast.List(texts, ast.Load()), node)


def _message_text(node: ast.expr) -> ast.expr | None:
    """The text of ``{"role": .., "content": ..}``, ``("system", ..)`` or ``SystemMessage(..)``."""
    if isinstance(node, ast.Dict):
        members = {
            k.value: v
            for k, v in zip(node.keys, node.values, strict=True)
            if isinstance(k, ast.Constant)
        }
        return members.get("content") if "role" in members else None
    if isinstance(node, ast.Tuple) and len(node.elts) == 2:  # noqa: PLR2004 - role and text
        role, text = node.elts
        return text if isinstance(role, ast.Constant) and role.value in _ROLES else None
    if isinstance(node, ast.Call) and called(node) in _MESSAGE_CALLS:
        given = [k.value for k in node.keywords if k.arg in _MESSAGE_KEYS] + node.args
        return given[0] if given else None
    return None
