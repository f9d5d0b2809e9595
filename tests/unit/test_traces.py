"""Reading a trace: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path

import pytest

from prefixctl.errors import InputError, NothingToDoError
from prefixctl.sources import traces
from prefixctl.sources.traces import Trace, load_trace


def line(**fields: object) -> str:
    """A request of two full blocks of 4 tokens and a partial one."""
    whole = {"timestamp": 0, "input_length": 10, "output_length": 3, "hash_ids": [1, 2, 3]}
    return json.dumps({**whole, **fields})


@pytest.fixture
def load(tmp_path: Path):
    def load_text(text: str | bytes, **options: object) -> Trace:
        path = tmp_path / "trace.jsonl"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_trace(path, **options)

    return load_text


def test_full_blocks_are_chains_and_the_partial_one_is_none(load) -> None:
    other = line(timestamp=1000, hash_ids=[1, 9, 8], tenant="shop")
    trace = load("\n".join([line(), other]))
    assert trace.block_tokens == 4
    assert trace.chains == [[0, 1], [0, 2]]
    assert trace.contents == 3
    assert trace.input_tokens == [10, 10]
    assert trace.output_tokens == [3, 3]
    assert trace.timestamps_ms == [0, 1000]
    assert trace.tenants == [None, "shop"]
    assert trace.malformed == ()


def test_requests_come_in_order_of_time(load) -> None:
    late = line(timestamp=5000, hash_ids=["x", "y", "z"])
    trace = load("\n".join([late, line()]))
    assert trace.timestamps_ms == [0, 5000]
    assert trace.chains == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + line().encode(),
        line().encode() + b"\r\n" + line().encode() + b"\r\n",
        b"\n\n" + line().encode() + b"\n   \n",
        gzip.compress(line().encode() + b"\n" + line().encode()),
        line(hash_ids=[10**30, "a" * 10_000, -7]).encode(),
        line(extra={"any": ["thing"]}).encode(),
    ],
    ids=["bom", "crlf", "blank lines", "gzip", "huge ids", "more fields"],
)
def test_what_files_look_like_in_practice(load, text: bytes) -> None:
    trace = load(text)
    assert trace.block_tokens == 4
    assert trace.chains[0] == [0, 1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not JSON at column 2: Expecting property name enclosed in double quotes"),
        (line()[:40], "the line has no end: is the file cut off?"),
        ("[]", "not a JSON object"),
        ("7", "not a JSON object"),
        ("[" * 100_000, "not JSON that can be read: nested too deeply, or a huge number"),
        ('{"timestamp": ' + "9" * 5000 + "}", "nested too deeply, or a huge number"),
        (b'{"timestamp": "\xff"}', "not UTF-8"),
        (line().encode("utf-16"), "not UTF-8"),
        (line(hash_ids=None), "'hash_ids' is no list of numbers or strings"),
        (line(hash_ids=[1, 2.5, 3]), "'hash_ids' is no list of numbers or strings"),
        (line(hash_ids=[1, True, 3]), "'hash_ids' is no list of numbers or strings"),
        (line(hash_ids={"1": 2}), "'hash_ids' is no list of numbers or strings"),
        (line(tenant=7), "'tenant' is no string"),
        (line(timestamp="now"), "'timestamp' is no number of milliseconds"),
        (line(timestamp=-1), "'timestamp' is no number of milliseconds"),
        (line(timestamp=float("nan")), "'timestamp' is no number of milliseconds"),
        (line(timestamp=10**400), "'timestamp' is no number of milliseconds"),
        (line(input_length=-1), "'input_length' is no number of tokens"),
        (line(input_length=10.0), "'input_length' is no number of tokens"),
        (line(input_length=True), "'input_length' is no number of tokens"),
        (line(output_length=10**400), "'output_length' is no number of tokens"),
        (line(input_length=99), "3 ids do not fit 99 tokens in blocks of 4"),
        (line(hash_ids=[5, 2, 3]), "id 2 follows another id than before: ids must be chained"),
        (line(hash_ids=[5, 5, 3]), "id 5 follows another id than before: ids must be chained"),
    ],
)
def test_a_malformed_line_is_named(load, bad: str | bytes, reason: str) -> None:
    raw = bad if isinstance(bad, bytes) else bad.encode()
    good = line().encode() + b"\n"
    text = good * 2 + b"\n" + raw
    with pytest.raises(InputError) as refused:
        load(text)
    assert refused.value.line == 4
    assert refused.value.where.endswith("trace.jsonl:4")
    assert reason in refused.value.message
    assert "--skip-malformed" in str(refused.value.hint)

    trace = load(text, skip_malformed=True)
    assert trace.chains == [[0, 1], [0, 1]]
    assert {bad.line for bad in trace.malformed} >= {4}


def test_a_refused_line_leaves_nothing_behind(load) -> None:
    """Ids of a line that is left out are free for the lines after it."""
    broken = line(hash_ids=[7, 2, 3])
    after = line(hash_ids=[7, 8, 9])
    trace = load("\n".join([line(), broken, after]), skip_malformed=True)
    assert trace.chains == [[0, 1], [2, 3]]
    assert trace.contents == 4


def test_ten_thousand_malformed_lines(load) -> None:
    with pytest.raises(InputError) as refused:
        load(line() + "\n" + "oops\n" * 10_000)
    assert refused.value.line == 2
    assert "10,000 malformed lines in all" in refused.value.message
    assert len(refused.value.message) < 600
    trace = load(line() + "\n" + "oops\n" * 10_000, skip_malformed=True)
    assert len(trace.chains) == 1
    assert len(trace.malformed) == 10_000


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_nothing_in_it(load, text: str) -> None:
    with pytest.raises(NothingToDoError, match="the trace is empty"):
        load(text)


def test_no_request_in_it(load) -> None:
    with pytest.raises(NothingToDoError, match="none of 2 lines is a request"):
        load("oops\noops\n", skip_malformed=True)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_trace(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="directory"):
        load_trace(tmp_path)
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(line().encode() * 100)[:40])
    with pytest.raises(InputError, match="cannot read the trace"):
        load_trace(cut)


@pytest.mark.parametrize("size", [1, 16, 48, 100, 512])
def test_the_block_size_is_found(load, size: int) -> None:
    requests = []
    for number in range(20):
        length = size * (number % 7 + 2) + number % size
        ids = [f"{number}-{block}" for block in range(-(-length // size))]
        requests.append(line(input_length=length, hash_ids=ids))
    assert load("\n".join(requests)).block_tokens == size


def test_no_block_size_fits(load) -> None:
    with pytest.raises(InputError, match="no block size fits") as refused:
        load("\n".join(line(input_length=10**n, hash_ids=[n]) for n in range(6, 15)))
    assert "--block-size" in str(refused.value.hint)


def test_a_given_block_size_counts(load) -> None:
    trace = load(line(input_length=8, hash_ids=[1, 2]), block_tokens=4)
    assert (trace.block_tokens, trace.chains) == (4, [[0, 1]])
    with pytest.raises(InputError, match="2 ids do not fit 8 tokens in blocks of 2"):
        load(line(input_length=8, hash_ids=[1, 2]), block_tokens=2)


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_once(tmp_path: Path, packed) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = "\n".join([line(), line(timestamp=1000)]).encode()

    def fill() -> None:
        with pipe.open("wb") as file:
            file.write(gzip.compress(data) if packed else data)

    writer = threading.Thread(target=fill)
    writer.start()
    trace = load_trace(pipe)
    writer.join(timeout=10)
    assert trace.timestamps_ms == [0, 1000]


def test_what_has_no_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load) -> None:
    link = tmp_path / "zeros"
    link.symlink_to("/dev/zero")
    for path in (link, Path("/dev/zero")):
        with pytest.raises(InputError, match="a device, and no trace"):
            load_trace(path)
    monkeypatch.setattr(traces, "MAX_LINE_BYTES", 500)
    bomb = "\n".join([line(), line(more="x" * 500)])
    for data in (bomb.encode(), gzip.compress(bomb.encode())):
        with pytest.raises(InputError, match="a line of more than 500 bytes") as caught:
            load(data, skip_malformed=True)
        assert caught.value.line == 2
