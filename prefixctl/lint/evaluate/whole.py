"""What a whole document prints: its blocks, one behind the other."""

from __future__ import annotations

from prefixctl.lint.document import Block, Document, Doubt, Syntax
from prefixctl.lint.evaluate.braces import read_braces
from prefixctl.lint.evaluate.dollar import read_dollar
from prefixctl.lint.evaluate.doubts import without_doubts
from prefixctl.lint.evaluate.persona import with_persona
from prefixctl.lint.evaluate.python_format import read_python_format
from prefixctl.lint.evaluate.statements import read_template
from prefixctl.lint.evaluate.value import Value, concat, in_block, text_value


def read_document(document: Document) -> Value:
    """What a document prints.

    Raises:
        UnreadableError: If a template is nested too deeply or takes too long to read.
    """
    blocks = (in_block(read_block(document, b), i) for i, b in enumerate(document.blocks))
    whole = with_persona(concat(blocks))
    doubts = {b.doubt for b in document.blocks} - {Doubt.NONE}
    return without_doubts(whole, piece=Doubt.PIECE in doubts) if doubts else whole


def read_block(document: Document, block: Block) -> Value:
    """What one block prints."""
    if block.value is not None:
        return block.value
    if block.syntax is Syntax.JINJA and block.template is not None:
        return read_template(
            block.template,
            chat=document.chat,
            parameters=document.parameters,
            constants=document.constants,
            loader=document.loader,
        )
    if block.syntax is Syntax.BRACES:
        return read_braces(block.text)
    if block.syntax is Syntax.DOLLAR:
        return read_dollar(block.text)
    if block.syntax is Syntax.PYTHON:
        return read_python_format(block.text)
    return text_value(block.text)
