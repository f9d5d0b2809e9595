"""What a settings rule is, and what it looks at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prefixctl.config import TargetConfig
from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.sources.settings.launch import Engine, Launch

CPU_BLOCK = 128
"""vLLM's default block size on a CPU host."""
BLOCK_FLAGS = ("--block-size", "--page-size")
ALGORITHM_FLAG = "--prefix-caching-hash-algo"
DEFAULT_ALGORITHM = "sha256"
SEED = "PYTHONHASHSEED"
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedPrefix:
    """A governed prompt as the lock has it on the target: shared tokens, shortest request."""

    name: str
    shared_tokens: int
    request_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The target of prefixctl.yaml that a launch is compared with."""

    name: str
    settings: TargetConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A launch and what is known around it.

    Attributes:
        launch: The launch.
        format: Of its file.
        others: The launches ahead of it in all files, this one left out.
        target: What it is compared with, if anything.
        prefixes: The governed prompts of that target.
    """

    launch: Launch
    format: str
    others: tuple[Launch, ...] = ()
    target: Expected | None = None
    prefixes: tuple[GovernedPrefix, ...] = ()

    @property
    def is_vllm(self) -> bool:
        """Whether it starts vLLM."""
        return self.launch.engine is Engine.VLLM


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRule:
    """A lint rule on launches; the shape is that of `prefixctl.lint.rule.Rule`.

    Attributes:
        id: ``PFX6`` and two digits.
        name: Reads well after "allow".
        severity: Of its worst finding.
        confidence: Of its surest finding.
        check: Finds.
    """

    id: str
    name: str
    severity: Severity
    confidence: Confidence
    check: Callable[[SettingRule, Setting], Iterator[Finding]]

    def finding(
        self,
        location: Location,
        message: str,
        advice: str,
        *,
        variable: str,
        severity: Severity | None = None,
        confidence: Confidence | None = None,
    ) -> Finding:
        """A finding of this rule."""
        return Finding(
            rule=self.id,
            name=self.name,
            severity=self.severity if severity is None else severity,
            confidence=self.confidence if confidence is None else confidence,
            location=location,
            message=message,
            advice=advice,
            variable=variable,
        )


def number(value: str | None) -> int | None:
    """A count as vLLM reads it: ``16384``, ``16k`` (thousands), ``16K`` (1,024s); else None."""
    match = _NUMBER.fullmatch((value or "").strip())
    return int(float(match[1]) * _FACTORS[match[2]]) if match else None


def block_size(launch: Launch) -> int | None:
    """Tokens in a block as far as the file says, or as vLLM's CPU build has it by default."""
    if launch.flag(*BLOCK_FLAGS) is not None:
        return number(launch.value(*BLOCK_FLAGS))
    cpu = launch.engine is Engine.VLLM and launch.on_cpu and not launch.is_open
    return CPU_BLOCK if cpu else None


def algorithm(launch: Launch) -> str | None:
    """The block hash of vLLM, or None if the file leaves it open."""
    if launch.flag(ALGORITHM_FLAG) is not None:
        return launch.value(ALGORITHM_FLAG)
    return None if launch.is_open or launch.engine is not Engine.VLLM else DEFAULT_ALGORITHM


def seed(launch: Launch) -> tuple[bool, str | None]:
    """Whether the file settles PYTHONHASHSEED, and its value (None if it is not set)."""
    variable = launch.variable(SEED)
    if variable is None:
        return not launch.environment_open, None
    return variable.value is not None, variable.value
