"""One thin module per command group; each has ``register(app)``."""

from types import ModuleType

from prefixctl.cli import (
    audit,
    demo,
    lint,
    render,
    rules,
    schema,
    serve,
    template,
    versions,
    warm,
)

COMMAND_MODULES: tuple[ModuleType, ...] = (
    lint,
    template,
    versions,
    render,
    serve,
    warm,
    rules,
    audit,
    schema,
    demo,
)
