"""One thin module per command group; each has ``register(app)``."""

from types import ModuleType

from prefixctl.cli import (
    audit,
    demo,
    init,
    keys,
    lint,
    pins,
    render,
    rules,
    schema,
    serve,
    settings,
    simulate,
    template,
    tiers,
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
    tiers,
    pins,
    keys,
    rules,
    audit,
    simulate,
    schema,
    demo,
)
