"""``schema``: JSON Schemas of the files that people write, for editors."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from prefixctl.cli.output import print_json


class SchemaName(StrEnum):
    """A file that has a schema."""

    CONFIG = "config"
    PROMPT = "prompt"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schema")(schema)


def schema(
    name: Annotated[SchemaName, typer.Argument(help="prefixctl.yaml, or a prompt's prompt.yaml.")],
) -> None:
    """Print a JSON Schema, for an editor's YAML support."""
    from prefixctl.config import Config
    from prefixctl.prompts.load import PromptModel

    model = Config if name is SchemaName.CONFIG else PromptModel
    made = model.model_json_schema()
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **made})
