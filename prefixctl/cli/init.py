"""`prefixctl init`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, clean, print_json

if TYPE_CHECKING:
    from prefixctl.adopt.model import Proposal

CONFIG_NAME = "prefixctl.yaml"
TARGET = f", fill in `targets:` in {CONFIG_NAME} (without a target no tokens and blocks are known)"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def init(
    folder: Annotated[
        Path, typer.Argument(help="The repository, or a part of it; here if omitted.")
    ] = Path(),
    write: Annotated[bool, typer.Option("--write", help="Write the files.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Adopt a repository: find its prompts and propose how to govern them.

    Shows every file that it would write: prefixctl.yaml, one prompt.yaml per prompt with guessed
    scopes, a CI workflow, and a baseline of today's findings. Changes nothing without --write, and
    never a file that exists. Exits 3 if no prompt was found.
    """
    from prefixctl.api.init import propose_adoption, write_adoption

    proposal = propose_adoption(folder)
    written = write_adoption(folder, proposal) if write else ()
    if output is Format.JSON:
        print_json(_value(proposal, written=write))
        return
    if not write:
        for file in proposal.files:
            typer.echo(clean(f"--- {file.path}\n{file.text.rstrip()}\n"))
    for path in written:
        typer.echo(clean(f"wrote {path}"))
    if proposal.baseline and not write:
        typer.echo(f"--- {proposal.baseline}\n(the findings that lint has today)\n")
    for line in _summary(proposal, written=write):
        typer.echo(clean(line))


def _summary(proposal: Proposal, *, written: bool) -> list[str]:
    lines = [f"left out {x.path}: {x.reason}" for x in proposal.left_out]
    lines += [f"chat template {path}: name it in a target" for path in proposal.chat_templates]
    if not proposal.files:
        lines.append(
            f"nothing to do: {proposal.governed} prompt{'s' * (proposal.governed != 1)} governed"
        )
    elif written:
        new = any(file.path == CONFIG_NAME for file in proposal.files)
        lines.append(
            f"next: check the guesses{TARGET if new else ''}, run prefixctl bump, and commit what "
            "was written with the lock"
        )
    else:
        count = len(proposal.prompts)
        files = len(proposal.files) + (proposal.baseline is not None)
        lines.append(
            f"{count} prompt{'s' * (count != 1)}, {files} files to write; "
            "nothing was changed: --write writes them"
        )
    return lines


def _value(proposal: Proposal, *, written: bool) -> dict[str, object]:
    return {
        "schema": 1,
        "written": written,
        "prompts": list(proposal.prompts),
        "governed_before": proposal.governed,
        "files": [{"path": f.path, "text": f.text} for f in proposal.files],
        "baseline": proposal.baseline,
        "present": list(proposal.present),
        "left_out": [{"path": x.path, "reason": x.reason} for x in proposal.left_out],
        "chat_templates": list(proposal.chat_templates),
    }
