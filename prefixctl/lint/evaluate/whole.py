"""What a whole document prints: its blocks, one behind the other."""

from __future__ import annotations

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.braces import read_braces
from prefixctl.lint.evaluate.persona import with_persona
from prefixctl.lint.evaluate.python_format import read_python_format
from prefixctl.lint.evaluate.statements import read_template
from prefixctl.lint.evaluate.value import Value, concat, in_block, text_value


def read_document(document: Document) -> Value:
    """What a document prints.

    Raises:
        UnreadableError: If a template is nested too deeply or takes too long to read.
    """
    blocks = (in_block(_read_block(document, b), i) for i, b in enumerate(document.blocks))
    return with_persona(concat(blocks))


def _read_block(document: Document, block: Block) -> Value:
    if block.syntax is Syntax.JINJA and block.template is not None:
        return read_template(
            block.template,
            chat=document.chat,
            parameters=document.parameters,
            loader=document.loader,
        )
    if block.syntax is Syntax.BRACES:
        return read_braces(block.text)
    if block.syntax is Syntax.PYTHON:
        return read_python_format(block.text)
    return text_value(block.text)
