"""One thin module per command group; each has ``register(app)``."""

from types import ModuleType

from prefixctl.cli import audit, demo, rules, schema, serve, warm

COMMAND_MODULES: tuple[ModuleType, ...] = (serve, warm, rules, audit, demo, schema)
