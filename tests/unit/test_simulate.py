"""`prefixctl simulate`: pins and their price, tenants, replicas, options, output, exit codes."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import prefixctl.cli.main
from prefixctl.api.simulate import Options, parse_capacity, simulate
from prefixctl.core.policy.make import POLICIES
from prefixctl.errors import UsageError
from prefixctl.traffic.choices import Isolation, Routing, Rules, Tenants
from prefixctl.traffic.setup import Service

SIZE = 16
TAU = Path(__file__).parents[3] / "shared" / "traces" / "tau_airline_blk16.jsonl"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes requests, each a list of block names, as a trace; every 5th token is a tail."""

    def write_trace(prompts: list[list[str]], **fields: list[object]) -> Path:
        path = tmp_path / "trace.jsonl"
        lines = []
        for number, prompt in enumerate(prompts):
            ids = ["/".join(prompt[:end]) for end in range(1, len(prompt) + 1)]
            line = {
                "timestamp": number * 1000,
                "input_length": SIZE * len(prompt) + 5,
                "output_length": 1,
                "hash_ids": [*ids, f"tail {number}"],
            }
            line.update({name: values[number] for name, values in fields.items()})
            lines.append(json.dumps(line))
        path.write_text("\n".join(lines))
        return path

    return write_trace


def named(name: str, length: int) -> list[str]:
    return [f"{name}{position}" for position in range(length)]


def flooded(rounds: int) -> list[list[str]]:
    """A hot prefix of 20 blocks every fifth request, one-off prompts of 30 between."""
    return [
        named(f"once{round_}-{number}-", 30) if number else named("hot", 20)
        for round_ in range(rounds)
        for number in range(5)
    ]


def test_a_scan_flushes_what_is_hot_unless_it_is_pinned(write: Write) -> None:
    path = write(flooded(40))
    row = simulate(path, capacities=["100"], policies=["lru"]).rows[0]
    assert row.outcome.counts.hit_blocks == 0
    pinned = simulate(path, capacities=["100"], policies=["lru"], options=Options(pin_top=1))
    price = pinned.rows[0].pins
    assert price is not None
    assert pinned.rows[0].outcome.counts.hit_blocks == 39 * 20, "every request after the first"
    assert (price.prefixes, price.blocks, price.left_out) == (1, 20, 0)
    assert (price.hits, price.gained, price.lost, price.net) == (39 * 20, 39 * 20, 0, 39 * 20)


def test_the_price_of_a_pin_is_what_its_memory_would_have_earned(write: Write) -> None:
    """The pinned prefix is never asked for again; without it two others would fit."""
    cold = [named("cold", 6)] * 4
    others = [named("x", 7), named("y", 7)] * 20
    path = write(cold + others)
    options = Options(pin_top=1, pin_share=0.4)
    row = simulate(path, capacities=["16"], policies=["lru"], options=options).rows[0]
    unpinned = simulate(path, capacities=["16"], policies=["lru"]).rows[0].outcome.counts
    price = row.pins
    assert price is not None
    assert (price.blocks, price.gained) == (6, 0)
    assert price.lost > 100
    assert price.net == row.outcome.counts.hit_blocks - unpinned.hit_blocks == -price.lost


def test_pins_leave_room_for_the_longest_request(write: Write) -> None:
    prompts = [named("hot", 10)] * 20 + [named("long", 38)]
    options = Options(pin_top=1, pin_share=0.9)
    tight, roomy = simulate(
        write(prompts), capacities=["44", "60"], policies=["lru"], options=options
    ).rows
    assert tight.pins is not None
    assert (tight.pins.blocks, tight.pins.left_out) == (0, 1)
    assert roomy.pins is not None
    assert roomy.pins.blocks == 10
    assert tight.outcome.counts.rejected == roomy.outcome.counts.rejected == 0


def test_shares_protect_a_tenant_from_another(write: Write) -> None:
    prompts, tenants = [], []
    for number in range(60):
        prompts += [named(f"flood{number}-{which}-", 8) for which in range(3)] + [named("calm", 6)]
        tenants += ["loud"] * 3 + ["calm"]
    path = write(prompts, tenant=tenants)
    without, with_shares = (
        simulate(path, capacities=["24"], policies=["lru"], options=Options(shares=shares)).rows[0]
        for shares in (False, True)
    )
    assert without.outcome.counts.hit_blocks == 0
    assert with_shares.outcome.counts.hit_blocks == 59 * 6


def test_isolation(write: Write) -> None:
    """Two tenants, a common prefix of 3 blocks, and a part of their own."""
    prompts = [
        named("common", 3) + named(tenant, 2) + [f"q{number}"]
        for number in range(30)
        for tenant in ("a", "b", "c")
    ]
    path = write(prompts)
    hits = {}
    for isolation in Isolation:
        result = simulate(
            path,
            capacities=["1000"],
            policies=["lru"],
            options=Options(isolation=isolation, tenants=Tenants.SESSION),
        )
        hits[isolation] = result.rows[0].outcome.counts.hit_blocks
        assert result.distinct_blocks == 3 + 6 + 90, "of the trace, so that % stays the same"
        extra = 6 if isolation is Isolation.FULL else 0
        assert result.isolated_blocks == result.distinct_blocks + extra
        assert result.public_blocks == (3 if isolation is Isolation.SELECTIVE else 0)
    cold = 3 + 6
    assert hits[Isolation.NONE] == hits[Isolation.SELECTIVE] == 90 * 5 - cold
    assert hits[Isolation.FULL] == 90 * 5 - 15


@pytest.mark.slow
@pytest.mark.skipif(not TAU.is_file(), reason="the shared traces are not here")
def test_isolation_on_real_agent_sessions() -> None:
    ceilings = {
        isolation: simulate(
            TAU,
            capacities=["100%"],
            policies=["lru"],
            options=Options(isolation=isolation, tenants=Tenants.SESSION, rules=Rules.PLAIN),
        ).ceiling
        for isolation in Isolation
    }
    assert ceilings[Isolation.NONE] == pytest.approx(0.924, abs=0.0005)
    assert ceilings[Isolation.FULL] == pytest.approx(0.892, abs=0.0005)
    assert ceilings[Isolation.NONE] - ceilings[Isolation.SELECTIVE] <= 0.005


def test_routing(write: Write) -> None:
    """Three prefixes in turn, two replicas with room for two prefixes each."""
    rng = random.Random(1)
    prompts = [[*named("abc"[rng.randrange(3)], 8), f"q{number}"] for number in range(300)]
    path = write(prompts)
    outcomes = {}
    for routing in Routing:
        options = Options(replicas=2, routing=routing)
        row = simulate(path, capacities=["20"], policies=["lru"], options=options).rows[0]
        outcomes[routing] = row.outcome
        assert sum(row.outcome.replica_requests) == 300
        assert sum(row.outcome.replica_hits) == row.outcome.counts.hit_blocks
        assert min(row.outcome.replica_requests) > 30, "no replica idles"
    assert outcomes[Routing.ROUND_ROBIN].replica_requests == (150, 150)
    best = outcomes[Routing.PREFIX_AWARE].block_hit_rate
    assert best > outcomes[Routing.ROUND_ROBIN].block_hit_rate + 0.1
    assert best > outcomes[Routing.LEAST_LOAD].block_hit_rate + 0.1


def test_least_load_evens_out_what_is_computed(write: Write) -> None:
    """Every other prompt is long: round-robin gives one replica all of them."""
    prompts = [named(f"p{number}-", 30 if number % 2 else 2) for number in range(60)]
    path = write(prompts)

    def long_ones(routing: Routing) -> tuple[int, ...]:
        options = Options(replicas=2, routing=routing)
        row = simulate(path, capacities=["400"], policies=["lru"], options=options).rows[0]
        return row.outcome.replica_requests

    assert long_ones(Routing.ROUND_ROBIN) == (30, 30)
    uneven = long_ones(Routing.LEAST_LOAD)
    assert sorted(uneven) != [30, 30]


def test_more_memory_and_the_optimum(write: Write) -> None:
    rng = random.Random(2)
    prompts = [named(f"p{int(rng.paretovariate(1))}-", 6) for _ in range(400)]
    result = simulate(
        write(prompts),
        capacities=["5%", "20%", "100%"],
        policies=["all"],
        options=Options(rules=Rules.PLAIN),
    )
    assert [row.policy for row in result.rows] == list(POLICIES) * 3
    for start in (0, len(POLICIES), 2 * len(POLICIES)):
        group = {row.policy: row for row in result.rows[start : start + len(POLICIES)]}
        best = group["min"].outcome.block_hit_rate
        assert all(row.outcome.block_hit_rate <= best for row in group.values())
        assert group["lru"].over_lru == 0
        if group["min"].gap_closed is not None:
            assert (group["min"].gap_closed, group["lru"].gap_closed) == (1, 0)
    lru = [row.outcome.block_hit_rate for row in result.rows if row.policy == "lru"]
    assert lru == sorted(lru)
    assert result.rows[-1].outcome.token_hit_rate == pytest.approx(result.ceiling)


def test_one_pass_for_all_sizes_gives_the_same_as_replay_by_replay(write: Write) -> None:
    rng = random.Random(3)
    path = write([named(f"p{rng.randrange(30)}-", rng.randrange(1, 9)) for _ in range(300)])
    options = Options(rules=Rules.PLAIN)
    swept = simulate(path, capacities=["10", "40", "90"], policies=["lru"], options=options).rows
    one = Options(rules=Rules.PLAIN, ttl_seconds=1e12)
    replayed = simulate(path, capacities=["10", "40", "90"], policies=["lru"], options=one).rows
    for first, second in zip(swept, replayed, strict=True):
        assert first.outcome.counts.hit_blocks == second.outcome.counts.hit_blocks
        assert first.outcome.counts.evicted_blocks == second.outcome.counts.evicted_blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("5%", 50), ("0.1%", 1), ("7", 7), ("7b", 7), ("1000t", 62), (" 12 ", 12),
        ("1GiB", 512), ("1.5 MiB", None), ("300%", 3000),
    ],
)  # fmt: skip
def test_capacities(text: str, blocks: int | None) -> None:
    given = {"distinct_blocks": 1000, "block_tokens": 16, "token_bytes": 131_072}
    if blocks is None:
        with pytest.raises(UsageError, match="less than one block of 16 tokens"):
            parse_capacity(text, **given)
    else:
        assert parse_capacity(text, **given) == blocks


@pytest.mark.parametrize("text", ["", "many", "-5", "5%%", "1e9", "9" * 400, "0", "0%", "5 kB"])
def test_words_that_are_no_capacity(text: str) -> None:
    with pytest.raises(UsageError):
        parse_capacity(text, distinct_blocks=1000, block_tokens=16, token_bytes=1)


def test_a_pool_beyond_all_need_costs_no_memory(write: Write) -> None:
    path = write([named("a", 3)] * 3)
    options = Options(host="999999999999999", pin_top=1)
    rows = simulate(path, capacities=["999999999999999"], policies=["lru"], options=options).rows
    assert rows[0].outcome.counts.hit_blocks == 6


def test_numbers_that_are_none() -> None:
    for options in (
        Options(ttl_seconds=float("nan")),
        Options(pin_share=float("inf")),
        Options(
            service=Service(prefill_tokens_per_second=float("inf"), decode_tokens_per_second=1.0)
        ),
    ):
        with pytest.raises(UsageError, match="no number to reckon with"):
            simulate(Path("unread"), capacities=["5"], options=options)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["prefixctl", "simulate", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            prefixctl.cli.main.run()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


def test_the_table(write: Write, command) -> None:
    done = command(write(flooded(20)), "--capacity", "50,100")
    assert done.code == 0
    heading, *rows = done.out.splitlines()
    words = " ".join(heading.split())
    assert words == "capacity policy block hits token hits over LRU gap closed evicted"
    assert [row.split()[:2] for row in rows] == [
        [capacity, policy]
        for capacity in ("50", "100")
        for policy in ("lru", "lru_freq", "cost_aware", "min")
    ]
    assert "100 requests, 2,420 distinct blocks of 16 tokens" in done.err
    assert "-0" not in done.out


def test_the_table_says_what_pins_cost(write: Write, command) -> None:
    done = command(write(flooded(40)), "--capacity", "100", "--pin-top", "3", "--policy", "lru")
    assert done.code == 0
    assert done.out.splitlines()[1].split()[-4:] == ["20", "+780", "+0", "+780"]
    assert "what their memory would have earned with other blocks" in done.err
    unpinned = done.out.splitlines()[2].split()
    assert unpinned[1:3] == ["lru", "unpinned"]
    plain = command(write(flooded(40)), "--capacity", "100", "--policy", "lru")
    assert unpinned[3:5] == plain.out.splitlines()[1].split()[2:4]
    nothing = command(write([["a"], ["b"]]), "--pin-top", "1", "--capacity", "2")
    assert "nothing to pin" in nothing.err


def test_a_rejected_request_says_how_many_blocks_it_takes(write: Write, command) -> None:
    path = write([["a"], ["b", "c", "d", "e", "f"]])
    done = command(path, "--capacity", "2", "--policy", "lru")
    longest = command(path, "--capacity", "2", "--policy", "lru", "--format", "json")
    blocks = json.loads(longest.out)["longest_request_blocks"]
    assert f"the longest request takes {blocks:,} blocks" in done.err
    enough = command(path, "--capacity", blocks, "--policy", "lru")
    assert "rejected" not in enough.out + enough.err


def test_the_usual_policies_leave_out_the_optimum_where_it_has_no_meaning(
    write: Write, command
) -> None:
    path = write(flooded(4))
    for extra in (["--replicas", "2"], ["--host", "50%"], ["--pin-top", "1"], ["--ttl", "0"]):
        done = command(path, "--capacity", "100", *extra)
        assert done.code == 0, done.err
        rows = [row for row in done.out.splitlines()[1:] if "unpinned" not in row]
        assert [row.split()[1] for row in rows] == ["lru", "lru_freq", "cost_aware"]
        refused = command(path, "--policy", "lru,min", *extra)
        assert refused.code == 2
        assert "leave 'min' out" in refused.err


def test_json(write: Write, command) -> None:
    done = command(
        write(flooded(40)), "--capacity", "100", "--policy", "lru", "--pin-top", "1",
        "--token-bytes", "1024", "--format", "json",
    )  # fmt: skip
    value = json.loads(done.out)
    assert value["schema"] == 1
    assert (value["requests"], value["block_tokens"], value["malformed"]) == (200, 16, 0)
    assert value["options"]["pin_top"] == 1
    row = value["rows"][0]
    assert (row["policy"], row["capacity_blocks"]) == ("lru", 100)
    assert row["capacity_bytes"] == 100 * 16 * 1024
    assert row["pins"]["net"] == row["counts"]["hit_blocks"] == 780
    assert row["device_hit_tokens"] == 780 * 16
    assert row["block_hit_rate"] == round(780 / row["counts"]["asked_blocks"], 6)


def test_the_chart_is_a_drawing_with_one_line_for_each_policy(write: Write, command) -> None:
    words = (write(flooded(4)), "--capacity", "5%,7%,50%", "--policy", "all")
    assert command(*words, "--chart", "out.svg").code == 0
    root = ET.parse("out.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(POLICIES) <= set(texts)
    assert "Token hit rate, trace.jsonl" in texts
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 3 * len(POLICIES)
    for circle in circles:
        assert 0 <= float(circle.get("cx", "")) <= 720
        assert 0 <= float(circle.get("cy", "")) <= 420
    one = command(*words[:1], "--capacity", "5", "--policy", "lru", "--chart", "one.svg")
    assert one.code == 0
    ET.parse("one.svg")


def test_a_chart_does_not_overwrite_its_trace(write: Write, command, tmp_path: Path) -> None:
    path = write(flooded(2))
    link = tmp_path / "trace.svg"
    link.symlink_to(path.resolve())
    before = path.read_bytes()
    done = command(path, "--chart", str(link))
    assert done.code == 2 and "would overwrite the trace" in done.err
    assert path.read_bytes() == before


def test_a_chart_that_cannot_be_written_is_told_before_the_work(write: Write, command) -> None:
    path = write(flooded(2))
    for chart, words in (("out.png", "ending in .svg"), ("no/such/out.svg", "folder is not there")):
        done = command(path, "--chart", chart)
        assert done.code == 2
        assert (words in done.err, done.out) == (True, "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--policy", "lru_frq"], 2, "did you mean lru_freq"),
        (["--policy", "belady"], 2, "known: all, arc, cost_aware"),
        (["--policy", ","], 2, "an empty list"),
        (["--capacity", "lots"], 2, "give 5% of the distinct blocks, 8192 blocks"),
        (["--capacity", "24GiB"], 2, "--token-bytes"),
        (["--host", "lots"], 2, "'lots' is no capacity"),
        (["--capacity", "0.0001%"], 2, "less than one block"),
        (["--routing", "random"], 2, "'round-robin', 'least-load', 'prefix-aware'"),
        (["--ttl", "inf"], 2, "no number to reckon with"),
        (["--isolation", "full"], 2, "--tenants session"),
        (["--shares"], 2, "the trace names no tenants"),
        (["--block-size", "3"], 3, "trace.jsonl:1: 3 ids do not fit 37 tokens in blocks of 3"),
    ],
)
def test_errors_have_a_code_and_a_way_out(
    write: Write, command, words: list[str], code: int, said: str
) -> None:
    done = command(write([["a", "b"]] * 3), *words)
    assert (done.code, done.out) == (code, "")
    assert said in " ".join(done.err.replace("│", " ").split())


def test_traces_that_are_none_exit_3(tmp_path: Path, command) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert command(empty).code == 3
    assert command(tmp_path / "none.jsonl").code == 3
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n" * 3)
    done = command(bad)
    assert done.code == 3
    assert "bad.jsonl:1: 'hash_ids' is no list of numbers or strings" in done.err
    assert "--skip-malformed" in done.err
    assert command(bad, "--skip-malformed").code == 3


def test_malformed_lines_can_be_left_out_and_are_counted(write: Write, command) -> None:
    path = write([["a", "b"]] * 4)
    path.write_text(path.read_text() + "\nnonsense\x1b[31m\n")
    done = command(path, "--skip-malformed", "--capacity", "10", "--format", "json")
    value = json.loads(done.out)
    assert (done.code, value["requests"], value["malformed"]) == (0, 4, 1)
    assert value["malformed_lines"][0]["line"] == 5
    assert "1 malformed lines left out" in done.err
    assert "\x1b" not in done.err


def test_selective_isolation_of_requests_with_nothing_in_common(write: Write, command) -> None:
    path = write([["a", "b"], ["c", "d"]] * 3, tenant=["x", "y"] * 3)
    done = command(path, "--capacity", "10", "--isolation", "selective")
    assert done.code == 0
    assert "selective isolation shares nothing" in done.err


def test_more_replicas_than_anybody_has(write: Write, command) -> None:
    done = command(write(flooded(2)), "--capacity", "50", "--replicas", "10001")
    assert (done.code, "more than 10,000" in done.err) == (2, True)
