"""Tool schemas in JSON, YAML or TOML: static text ahead of everything else in a request."""

from __future__ import annotations

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.readers.tree import Tree
from prefixctl.lint.source import Origin, Source

_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")


def read_tools(source: Source, tree: Tree) -> Document | None:
    """The document of a file that holds a tool schema or a list of them, or None."""
    listed = tree if tree.items else tree.get("tools") or tree.get("functions") or tree
    tools = listed.items or [listed]
    if not all(is_tool(t) for t in tools):
        return None
    text = source.text[listed.start : listed.end] or source.text
    block = Block(text=text, syntax=Syntax.PLAIN, origin=Origin(source, listed.start))
    return Document(path=source.path, format="tools", blocks=(block,))


def is_tool(tree: Tree) -> bool:
    """Whether a value is a tool schema in OpenAI's, Anthropic's or MCP's form."""
    function = tree.get("function")
    schema = function if function is not None and function.get("name") is not None else tree
    named = (name := schema.get("name")) is not None and isinstance(name.value, str)
    return named and any(
        (p := schema.get(key)) is not None and isinstance(p.value, dict) for key in _PARAMETERS
    )
