"""OpenAI-style message lists and chat templates that are kept in JSON, YAML or TOML."""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.state import Loader, no_template
from prefixctl.lint.readers.text import text_block
from prefixctl.lint.readers.tree import Tree
from prefixctl.lint.source import Origin, Source

_CONTENT = ("content", "parts", "text", "template", "prompt")
_MAX_VALUES = 100_000


def read_messages(source: Source, tree: Tree, *, loader: Loader = no_template) -> list[Document]:
    """Read the message lists and chat templates of a JSON, YAML or TOML file.

    Args:
        source: The file.
        tree: What it holds.
        loader: Finds included templates.

    Returns:
        One document for each; none if the file holds neither.

    Raises:
        UnreadableError: If a template in it cannot be parsed.
    """
    documents = [_chat_template(source, t) for t in _chat_templates(tree)]
    for messages, tools in _message_lists(tree):
        blocks = [*_tool_blocks(source, tools), *_message_blocks(source, messages)]
        if blocks:
            documents.append(
                Document(path=source.path, format="messages", blocks=tuple(blocks), loader=loader)
            )
    return documents


def _chat_templates(tree: Tree) -> Iterator[Tree]:
    found = tree.get("chat_template")
    if found is None:
        return
    if isinstance(found.value, str):
        yield found
    for entry in found.items:
        template = entry.get("template")
        if template is not None and isinstance(template.value, str):
            yield template


def _chat_template(source: Source, tree: Tree) -> Document:
    block = _string_block(source, tree, template=True)
    return Document(path=source.path, format="chat-template", blocks=(block,), chat=True)


def _message_lists(tree: Tree) -> Iterator[tuple[list[Tree], Tree | None]]:
    """Message lists at any depth, with the tools beside them."""
    pending: list[tuple[Tree, Tree | None]] = [(tree, None)]
    for _ in range(_MAX_VALUES):
        if not pending:
            return
        current, holder = pending.pop()
        if is_message_list(current):
            yield current.items, None if holder is None else holder.get("tools")
        elif isinstance(current.value, dict):
            pending += [(v, current) for v in reversed(list(current.value.values()))]
        else:
            pending += [(item, None) for item in reversed(current.items)]


def is_message_list(tree: Tree) -> bool:
    """Whether a value is a list of messages with roles."""
    return bool(tree.items) and all(
        (role := m.get("role")) is not None and isinstance(role.value, str) for m in tree.items
    )


def _tool_blocks(source: Source, tools: Tree | None) -> Iterator[Block]:
    """Tool schemas are static text; their own braces are none of ours."""
    if tools is not None and tools.items:
        text = source.text[tools.start : tools.end]
        yield Block(text=text, syntax=Syntax.PLAIN, origin=Origin(source, tools.start))


def _message_blocks(source: Source, messages: list[Tree]) -> Iterator[Block]:
    for message in messages:
        content = next((c for k in _CONTENT if (c := message.get(k)) is not None), None)
        if content is None:
            continue
        texts = [content, *(t for p in content.items if (t := p.get("text")) is not None)]
        for text in texts:
            if isinstance(text.value, str) and text.value:
                yield _string_block(source, text)


def _string_block(source: Source, tree: Tree, *, template: bool = False) -> Block:
    text = tree.value if isinstance(tree.value, str) else ""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    origin = Origin(source, tree.start, tree.end)
    return text_block(text, origin, template=template, chat=template)
