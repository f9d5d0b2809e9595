"""Every error that prefixctl raises on purpose, and the exit code each one owns.

PrefixctlError                       70  a bug in prefixctl, unless a subclass says otherwise
|-- UsageError                        2  the words of the command do not fit together
|-- InputError                        3  a file, a configuration or a lock cannot be used
|   |-- ConfigError                      prefixctl.yaml
|   |-- PromptError                      a governed prompt or one of its files
|   |-- TokenizerError                   a tokenizer or chat template
|   |-- LockError                        prefixes.lock.yaml
|   |-- RegistryError                    the registry holds no such prompt, version or bytes
|   `-- NothingToDoError                 nothing was found to work on; never a clean pass
|-- UnreachableError                  4  an engine, Prometheus or a store does not answer
|   |-- ServerError                      the engine answered, but not with what was asked for
|   `-- PortInUseError                   the port that `serve` needs is taken
|-- DriftError                        5  lock, generated files or model differ from the lock
|-- UnderpoweredError                 6  an audit that cannot tell
|-- ClosedPipeError                 141  the reader of standard output went away; nothing is said
`-- InterruptedCommand              130  somebody ended the command before it was done

Findings are results, not errors: a command that ends with findings exits 1.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status means; when several apply, the largest wins."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    BAD_INPUT = 3
    UNREACHABLE = 4
    DRIFT = 5
    UNDERPOWERED = 6
    BUG = 70
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class PrefixctlError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        message: What is wrong, in one sentence.
        path: The file it is about, if any.
        line: The 1-based line in that file, if known.
        column: The 1-based column, counted in characters, if known.
        hint: The way out, if there is one to offer.
    """

    exit_code = ExitCode.BUG

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.column = column
        self.hint = hint

    @property
    def where(self) -> str:
        """``path:line:column`` as far as known, or an empty string."""
        if self.path is None:
            return ""
        parts = [self.path, *(str(n) for n in (self.line, self.column) if n is not None)]
        return ":".join(parts)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(PrefixctlError):
    """The words of the command do not fit together."""

    exit_code = ExitCode.USAGE


class InputError(PrefixctlError):
    """A file, a configuration or a lock cannot be used."""

    exit_code = ExitCode.BAD_INPUT


class ConfigError(InputError):
    """prefixctl.yaml cannot be used."""


class PromptError(InputError):
    """A governed prompt or one of its files cannot be used."""


class TokenizerError(InputError):
    """A tokenizer or a chat template is missing or broken."""


class LockError(InputError):
    """prefixes.lock.yaml cannot be used."""


class RegistryError(InputError):
    """The registry holds no such prompt, version or bytes."""


class NothingToDoError(InputError):
    """Nothing was found to work on, which is never a clean pass."""


class UnreachableError(PrefixctlError):
    """An engine, Prometheus or a store does not answer."""

    exit_code = ExitCode.UNREACHABLE


class ServerError(UnreachableError):
    """The engine answered, but not with what was asked for."""


class PortInUseError(UnreachableError):
    """The port that a server needs is taken."""


class OutputError(UnreachableError):
    """Standard output is full or closed, so the result did not arrive."""


class ClosedPipeError(OutputError):
    """The reader of standard output has read enough, as ``head`` does: an end, and no fault."""

    exit_code = ExitCode.CLOSED_PIPE


class DriftError(PrefixctlError):
    """The lock, a generated file or the model differs from what was recorded."""

    exit_code = ExitCode.DRIFT


class UnderpoweredError(PrefixctlError):
    """An audit without enough power to say."""

    exit_code = ExitCode.UNDERPOWERED


class InterruptedCommand(PrefixctlError):  # noqa: N818 - it is nobody's error
    """Somebody ended the command before it was done."""

    exit_code = ExitCode.INTERRUPTED
