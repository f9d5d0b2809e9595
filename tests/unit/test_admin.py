"""The admin routes from a client's side: every odd answer is a clear error, no secret is shown."""

import json

import httpx
import pytest

from prefixctl.api.pins import Scope, governed_prefixes
from prefixctl.config import Config
from prefixctl.engine.admin import AdminClient, GovernedPrefix
from prefixctl.errors import InputError, ServerError, UnreachableError, UsageError
from prefixctl.ids import Salt

TOKEN = "the-token"
BLOCKS = {"total": 9, "pinned": 2, "pinned_idle": 2, "in_flight": 0, "cached": 3, "blank": 4}
PIN = {"name": "a@1", "blocks": 2, "resident": 2, "pinned": 2, "active": True, "hits": 5}
STATE = {"policy": "lru", "blocks": BLOCKS, "pin_cap": 3, "pins": [PIN]}
PREFIX = GovernedPrefix(name="a@1", token_ids=(1, 2), salt=Salt("raw-salt"))


def client(answer, status=200, url="http://one", **more):
    """A client of a fake server that answers the same to everything."""
    if not isinstance(answer, bytes):
        answer = json.dumps(answer).encode()
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=answer))
    return AdminClient(url, TOKEN, transport=transport, **more)


def test_state_pins_and_residency_are_read():
    (state,) = client({"engines": [STATE]}).state()
    assert (state.policy, state.blocks["blank"], state.pins[0].pinned) == ("lru", 4, 2)
    assert client({"engines": [PIN, PIN]}).pin(PREFIX)[1].rank == 1
    assert client({"engines": [{"prefixes": [PIN]}]}).resident([PREFIX])[0].hits == 5
    assert client({"engines": [{"unpinned": 2}, {"unpinned": None}]}).unpin("a@1") == [2, None]


ODD = [
    b"", b"<html>", b"[" * 200_000, b'{"engines": NaN}', {"engines": []}, {"engines": 5},
    {"engines": None}, {"engines": "abc"}, {"engines": [5]}, {"engines": [{}]}, [], 7, None,
    {"engines": [STATE | {"blocks": {"total": "x"}}]}, {"engines": [STATE | {"pins": None}]},
    {"engines": [STATE | {"pins": [PIN | {"blocks": None}]}]},
    {"engines": [STATE | {"pins": [PIN | {"name": ["a"]}]}]},
    {"engines": [STATE | {"pin_cap": -1}]},
]  # fmt: skip


@pytest.mark.parametrize("answer", ODD, ids=range(len(ODD)))
def test_something_else_is_a_server_error(answer):
    with pytest.raises(ServerError, match="answered with something else"):
        client(answer).state()


@pytest.mark.parametrize("answer", [{}, 5, None, {"name": ["a"]}, {"unpinned": "x"}], ids=str)
def test_engines_that_say_something_else_are_a_server_error(answer):
    asked = client({"engines": [answer]})
    for ask in (
        lambda: asked.pin(PREFIX), lambda: asked.resident([PREFIX]), lambda: asked.unpin("a@1")
    ):  # fmt: skip
        with pytest.raises(ServerError, match="answered with something else"):
            ask()


def test_fewer_prefixes_than_asked_for_are_no_answer():
    with pytest.raises(ServerError, match="something else"):
        client({"engines": [{"prefixes": []}]}).resident([PREFIX])


def test_refusals_hide_what_was_sent():
    echo = json.dumps({"detail": f"Bearer {TOKEN} salt raw-salt is bad"}).encode()
    for status, error in ((400, ServerError), (401, InputError), (500, ServerError)):
        with pytest.raises(error) as caught:
            client(echo, status).pin(PREFIX)
        assert TOKEN not in str(caught.value) and "raw-salt" not in str(caught.value)
        with pytest.raises(error) as caught:
            client(echo, status).resident([PREFIX])
        assert "raw-salt" not in str(caught.value)


def test_a_server_without_the_routes_is_not_governed():
    with pytest.raises(ServerError, match="is not governed"):
        client({}, 404).state()


def test_huge_and_endless_answers_end():
    with pytest.raises(ServerError, match="more than"):
        client(b" " * (17 * 2**20)).state()
    with pytest.raises(ServerError, match="did not end within"):
        client({"engines": [STATE]}, timeout_seconds=-1).state()


def test_the_address_is_shown_without_its_secrets():
    def refuse(request):
        raise httpx.ConnectError("no", request=request)

    transport = httpx.MockTransport(refuse)
    with pytest.raises(UnreachableError) as error:
        AdminClient("http://user:hunter2@host:1/?token=s", TOKEN, transport=transport).state()
    assert "hunter2" not in str(error.value) and "token=s" not in str(error.value)
    assert "http://host:1" in str(error.value)


@pytest.mark.parametrize(
    "url", ["", "host:1", "127.0.0.1:8000", "ftp://x", "http://[::1", "http://a\x01"]
)
def test_what_is_no_address_is_said(url):
    with pytest.raises(UsageError, match="no address") as error:
        AdminClient(url, TOKEN)
    assert "http://HOST:PORT" in error.value.hint


@pytest.mark.parametrize("token", ["a\nb", "tökén", "a\x00"])
def test_a_token_that_cannot_be_sent_is_not_shown(token):
    with pytest.raises(InputError, match="cannot be sent") as error:
        AdminClient("http://one", token)
    assert token not in str(error.value)


def test_behind_the_gateway_a_pin_is_for_somebody():
    config = Config.model_validate({"gateway": {"enabled": True}})
    with pytest.raises(UsageError, match="for whom"):
        governed_prefixes(config, ["a"], scope=Scope(), environment={})
