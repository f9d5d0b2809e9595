"""One thin module per command group; each has ``register(app)``."""

from types import ModuleType

from prefixctl.cli import (
    audit,
    demo,
    init,
    lint,
    render,
    rules,
    schema,
    serve,
    settings,
    template,
    versions,
    warm,
)

COMMAND_MODULES: tuple[ModuleType, ...] = (
    init,
    lint,
    template,
    settings,
    versions,
    render,
    serve,
    warm,
    rules,
    audit,
    schema,
    demo,
)
