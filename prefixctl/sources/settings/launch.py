"""What a launch is: one start of an engine, with every setting in its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from prefixctl.core.findings import Location


class Engine(StrEnum):
    """Which server is started."""

    VLLM = "vllm"
    SGLANG = "sglang"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """An argument with its value.

    Attributes:
        name: With two dashes, words joined by dashes: ``--block-size``.
        value: The value; None for a switch. Only meaningful if it is known.
        known: False if the value is a variable that the file does not give.
        location: Where the flag stands.
        value_location: Where its value stands; of a switch, where the flag does.
        implied_by: Why it is given although the file does not write it, in words.
    """

    name: str
    value: str | None = field(repr=False)
    known: bool = True
    location: Location
    value_location: Location
    implied_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable; ``value`` is None if the file does not give it."""

    name: str
    value: str | None = field(repr=False)
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of an engine.

    Attributes:
        engine: Which one.
        name: Of the container, service or stage, or what else tells it from the others.
        location: Where the start stands.
        flags: In order; of a repeated one the last holds.
        environment: As far as the file gives it.
        image: The container image, if any.
        replicas: How many servers start so.
        is_open: Whether there are arguments that the file does not show, so that a flag which is
            missing here may be given all the same.
        environment_open: The same for the environment.
        model: The model argument, if it is known.
    """

    engine: Engine
    name: str
    location: Location
    flags: tuple[Flag, ...]
    environment: tuple[Variable, ...] = ()
    image: str | None = None
    replicas: int = 1
    is_open: bool = False
    environment_open: bool = False
    model: str | None = None

    def flag(self, *names: str) -> Flag | None:
        """The last flag of any of these names."""
        return next((f for f in reversed(self.flags) if f.name in names), None)

    def value(self, *names: str) -> str | None:
        """The value of the last flag of any of these names, if it is known."""
        flag = self.flag(*names)
        return flag.value if flag is not None and flag.known else None

    def variable(self, name: str) -> Variable | None:
        """The environment variable of that name."""
        return next((v for v in reversed(self.environment) if v.name == name), None)

    @property
    def on_cpu(self) -> bool:
        """Whether the file itself says that it runs vLLM's CPU build."""
        if self.variable("VLLM_CPU_KVCACHE_SPACE") or self.value("--device") == "cpu":
            return True
        return "cpu" in (self.image or "").lower().rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A file with the launches that were found in it.

    Attributes:
        path: The file.
        format: shell, dockerfile, compose, kubernetes or helm values.
        launches: In the order of the file.
        lines: The text of the lines that launches refer to, by number.
        text: All of it.
    """

    path: str
    format: str
    launches: tuple[Launch, ...]
    lines: dict[int, str] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)
