"""``bump``, ``diff``, ``history``, ``show``, ``publish``, ``rollback``, ``gc``: versions."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, load, out, print_json, talk
from prefixctl.core.reference import SHOWN_CHARS, version_number
from prefixctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from prefixctl.config import Config

AuthorOption = Annotated[
    str | None, typer.Option(help="Who does it; git's user if omitted.", show_default=False)
]
NameArgument = Annotated[str, typer.Argument(help="The prompt.")]
RefArgument = Annotated[
    str | None, typer.Argument(help="A number, live or previous.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (bump, diff, history, show, publish, rollback, gc):
        app.command(command.__name__)(command)


def bump(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Prompts; all of them if omitted.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; needed where a prompt changed.")] = "",
    author: AuthorOption = None,
    approver: Annotated[str, typer.Option(help="Who agreed.")] = "",
    note: Annotated[str, typer.Option(help="Anything else.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 5 if a bump is missing.")
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(
            help="With --check: a request log (JSON lines, may be gzipped), to tell which share "
            "of the traffic goes cold."
        ),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write the next version of every changed prompt to the lock.

    A prompt changed if its text did, or its key on a target: model, tokenizer, chat template or
    settings. `--check` is for CI: it names what changed and how many tokens become cold.
    """
    from prefixctl.api.versions import bump_prompts
    from prefixctl.cli import versions_view as view

    if log is not None and not check:
        raise UsageError("--log goes with --check")
    config = load(context)
    if check:
        raise typer.Exit(_check(config, names or (), log, output))
    result = bump_prompts(
        config,
        names or (),
        reason=reason,
        author=author or _author(config.root),
        approver=approver,
        note=note,
    )
    if output is Format.JSON:
        print_json(view.bump_value(result))
    else:
        view.print_bump(result)


def diff(
    context: typer.Context,
    name: NameArgument,
    old: RefArgument = None,
    new: RefArgument = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Compare two versions by section, token and block.

    Without versions: the newest one of the lock against the work tree.
    """
    from prefixctl.api.versions import diff_versions
    from prefixctl.cli import versions_view as view

    found = diff_versions(load(context), name, old, new)
    if output is Format.JSON:
        print_json(view.diff_value(found))
    else:
        view.print_diff(found)


def history(context: typer.Context, name: NameArgument, output: FormatOption = Format.TEXT) -> None:
    """List the versions of a prompt, which of them are served, and how stable its prefix is."""
    from prefixctl.api.versions import prompt_history
    from prefixctl.cli import versions_view as view

    found = prompt_history(load(context), name)
    if output is Format.JSON:
        print_json(view.history_value(found))
    else:
        view.print_history(found)


def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The prompt.")],
    target: Annotated[
        str | None, typer.Option(help="Target to render for; the first if omitted.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show a prompt as the model sees it: volatility, block ends, the end of the shared prefix.

    Without a version: the work tree.
    """
    from prefixctl.api.versions import show_prompt
    from prefixctl.cli import shown_view as view

    prompt, ref = _split(name)
    shown = show_prompt(load(context), prompt, ref, target=target)
    if output is Format.JSON:
        print_json(view.shown_value(shown))
    else:
        view.print_shown(shown)


def publish(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME[@VERSION]]...", help="Prompts.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every prompt of the lock.")] = False,
    author: AuthorOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make versions live in the registry: the newest of the lock, or the given ones."""
    from prefixctl.api.versions import publish_prompts
    from prefixctl.cli import versions_view as view
    from prefixctl.registry.publish import Wanted

    if every == bool(names):
        raise UsageError("name the prompts to publish, or give --all", hint="not both")
    config = load(context)
    wanted = []
    for text in names or ():
        name, ref = _split(text)
        wanted.append(Wanted(name=name, version=_number(ref)))
    changes = publish_prompts(config, wanted, by=author or _author(config.root))
    if output is Format.JSON:
        print_json(view.aliases_value(changes))
    else:
        view.print_aliases(changes)


def rollback(
    context: typer.Context,
    name: NameArgument,
    to: Annotated[
        int | None, typer.Option(help="Version; the previous one if omitted.", show_default=False)
    ] = None,
    author: AuthorOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make an earlier version live again, byte for byte, from the registry.

    The work tree stays as it is. A second rollback goes one version further back; to go forward
    again, publish.
    """
    from prefixctl.api.versions import rollback_prompt
    from prefixctl.cli import versions_view as view

    config = load(context)
    change = rollback_prompt(config, name, to, by=author or _author(config.root))
    if output is Format.JSON:
        print_json(view.aliases_value([change]))
    else:
        view.print_aliases([change])


def gc(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Remove versions that have been retired for the retention time; never live or previous."""
    from prefixctl.api.versions import remove_expired
    from prefixctl.cli import versions_view as view

    config = load(context)
    found = remove_expired(config, dry_run=dry_run)
    if output is Format.JSON:
        print_json(view.collected_value(found, dry_run=dry_run))
        return
    for ref in found.versions:
        out().print(f"{ref.name}@{ref.version}", markup=False)
    what = "would be removed" if dry_run else "removed"
    talk().print(
        f"{len(found.versions)} versions {what}, {found.freed_bytes:,} bytes in {found.blobs} "
        f"files; retention {config.registry.retention_days} days"
    )


def _check(config: Config, names: Sequence[str], log: Path | None, output: Format) -> ExitCode:
    """Print what lacks a bump, and tell the exit code."""
    from prefixctl.api.versions import check_prompts, check_traffic
    from prefixctl.cli import traffic_view
    from prefixctl.cli import versions_view as view

    found = check_prompts(config, names)
    traffic = None if log is None else check_traffic(config, found, log)
    if output is Format.JSON:
        shown = None if traffic is None else traffic_view.traffic_value(traffic)
        print_json(view.check_value(found) | {"traffic": shown})
    else:
        view.print_check(found)
        if traffic is not None:
            traffic_view.print_traffic(traffic)
    return ExitCode.DRIFT if found.drifts else ExitCode.OK


def _split(text: str) -> tuple[str, str | None]:
    """``NAME[@VERSION]`` as name and version."""
    name, _, ref = text.partition("@")
    if text.endswith("@"):
        raise UsageError(f"'{text}' names no version behind '@'")
    return name, ref or None


def _number(ref: str | None) -> int | None:
    if ref is None:
        return None
    number = version_number(ref)
    if number is None:
        raise UsageError(f"'{ref[:SHOWN_CHARS]}' is no version number")
    return number


def _author(folder: Path) -> str:
    """Git's user, else the user of the system."""
    git = shutil.which("git")
    words = []
    for key, form in (("user.name", "{}"), ("user.email", "<{}>")):
        if git is None:
            break
        done = subprocess.run(  # noqa: S603 - fixed words, and the path that PATH gives
            [git, "config", key],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode == 0 and done.stdout.strip():
            words.append(form.format(done.stdout.strip()))
    return " ".join(words) or _system_user()


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as exc:
        raise UsageError("nobody is named as the author", hint="give --author") from exc
