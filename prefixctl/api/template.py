"""Measure chat templates: what they do to the shared prefix, from turn to turn."""

from __future__ import annotations

from pathlib import Path

from prefixctl.errors import InputError
from prefixctl.lint.chat.behaviour import ChatBehaviour
from prefixctl.lint.chat.measure import measure_template
from prefixctl.lint.chat.report import TemplateReport
from prefixctl.lint.chat.source import NamedTemplate, read_templates
from prefixctl.prompts.sandbox import Sandbox

__all__ = ["ChatBehaviour", "TemplateReport", "measure_file", "measure_template"]


def measure_file(path: Path) -> tuple[TemplateReport, ...]:
    """Measure every chat template of a file.

    Args:
        path: A template, or a JSON file with a ``chat_template`` as tokenizers keep it.

    Raises:
        InputError: If the file cannot be read, or one of its templates cannot be parsed, refuses a
            plain question, is hostile, or prints no message.
        PrefixctlError: If the sandbox cannot be started.
    """
    templates = read_templates(path)
    with Sandbox() as sandbox:
        return tuple(_measured(path, t, sandbox) for t in templates)


def _measured(path: Path, template: NamedTemplate, sandbox: Sandbox) -> TemplateReport:
    behaviour = measure_template(template.source, sandbox=sandbox)
    if behaviour.failure is not None:
        raise InputError(
            f"cannot be rendered: {behaviour.failure.message}",
            path=str(path),
            line=behaviour.failure.line,
        )
    if not behaviour.shows_user:
        raise InputError(
            f"template '{template.name}' prints no user message",
            path=str(path),
            hint="is it a chat template? it reads `messages`",
        )
    return TemplateReport(path=str(path), name=template.name, behaviour=behaviour)
