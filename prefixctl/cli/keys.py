"""``keys``: the API keys by which the gateway knows tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, load, print_json, say, talk

if TYPE_CHECKING:
    from prefixctl.gateway.keys import StoredKey

SCHEMA = 1


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="API keys of tenants, for the gateway.", no_args_is_help=True)
    group.command("add")(add)
    group.command("list")(list_keys)
    group.command("revoke")(revoke)
    app.add_typer(group, name="keys")


def add(
    context: typer.Context,
    tenant: Annotated[str, typer.Argument(help="Whose key it is.")],
    note: Annotated[str, typer.Option(help="Words for people: who holds it.")] = "",
    output: FormatOption = Format.TEXT,
) -> None:
    """Make a key and print it once; the file keeps its digest only."""
    from prefixctl.api.keys import add_tenant_key

    key = add_tenant_key(load(context), tenant, note=note)
    if output is Format.JSON:
        print_json({"schema": SCHEMA, "tenant": tenant, "key": key})
    else:
        talk().print("this key is shown once:")
        say(key)


def list_keys(context: typer.Context, output: FormatOption = Format.TEXT) -> None:
    """Show whose keys there are, by the first characters of their digests."""
    from prefixctl.api.keys import list_tenant_keys

    keys = list_tenant_keys(load(context))
    _show(keys, output)
    if not keys:
        talk().print("no keys yet: prefixctl keys add TENANT")


def revoke(
    context: typer.Context,
    ids: Annotated[list[str], typer.Argument(help="From `keys list`.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Take keys out of the file; running gateways refuse them at once."""
    from prefixctl.api.keys import revoke_tenant_keys

    _show(revoke_tenant_keys(load(context), ids), output)


def _show(keys: list[StoredKey], output: Format) -> None:
    if output is Format.JSON:
        entries = [{"id": k.id, "tenant": k.tenant, "note": k.note} for k in keys]
        print_json({"schema": SCHEMA, "keys": entries})
        return
    for key in keys:
        say(f"{key.id}  {key.tenant}  {key.note}".rstrip())
