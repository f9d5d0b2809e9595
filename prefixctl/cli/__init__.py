"""One thin module per command group; each has ``register(app)``."""

from types import ModuleType

COMMAND_MODULES: tuple[ModuleType, ...] = ()
