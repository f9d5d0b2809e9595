"""Made traces of the shapes that serving has, for what the shared ones do not show.

Usage: python bench/shapes.py [SHAPE]. Without SHAPE: what there is, and how much each could hit.
With it: the trace, as `prefixctl simulate` reads it, on stdout.
"""

from __future__ import annotations

import json
import random
import sys
from bisect import bisect
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import accumulate, islice

from prefixctl.traffic.workload import Workload

BLOCK_TOKENS = 16
Part = Hashable
Prompt = list[Part]


def parts(*name: Part, length: int) -> Prompt:
    """A text of its own, so many blocks long."""
    return [(*name, position) for position in range(length)]


def zipf(rng: random.Random, number: int, exponent: float) -> Callable[[], int]:
    """Draws from 0 to number, the first ones most often."""
    weights = list(accumulate((rank + 1) ** -exponent for rank in range(number)))
    return lambda: min(bisect(weights, rng.random() * weights[-1]), number - 1)


def agents(
    rng: random.Random, *, sessions: int, at_once: int, tools: int, turns: int, burst: int = 1
) -> Iterator[Prompt]:
    """Sessions that grow by each step, some at once, and never come back when they are done.

    The first steps of a session are its most used blocks and are worthless after its end: what
    counts uses and never forgets fills up with them.
    """
    running: list[tuple[int, Prompt, int]] = []
    started = 0
    while running or started < sessions:
        while len(running) < at_once and started < sessions:
            started += 1
            prompt = parts("tools", length=tools) + parts("task", started, length=12)
            running.append((started, prompt, rng.randint(turns // 3, turns)))
        place = rng.randrange(len(running))
        session, prompt, left = running.pop(place)
        steps = min(rng.randint(1, burst), left)
        for _ in range(steps):
            yield list(prompt)
            prompt += parts("step", session, len(prompt), length=rng.randint(2, 9))
        if left > steps:
            running.append((session, prompt, left - steps))


def long_agents(rng: random.Random) -> Iterator[Prompt]:
    """Few agents at once, 40 to 120 steps each, over one tool list."""
    return agents(rng, sessions=16, at_once=4, tools=80, turns=120)


def many_agents(rng: random.Random) -> Iterator[Prompt]:
    """Many short agents at once."""
    return agents(rng, sessions=130, at_once=20, tools=40, turns=24)


def pausing_agents(rng: random.Random) -> Iterator[Prompt]:
    """Agents that run several steps in a row and then wait for a human."""
    return agents(rng, sessions=60, at_once=10, tools=60, turns=40, burst=8)


def talk(
    rng: random.Random, system: Callable[[int], Prompt], requests: int, goes_on: float = 0.6
) -> Iterator[Prompt]:
    """Conversations: each turn may be followed by another one, mostly soon."""
    waiting: list[tuple[int, Prompt]] = []
    conversations = 0
    for number in range(requests):
        if waiting and rng.random() < 0.55:
            back = 0.3 if rng.random() < 0.3 else 0.05
            place = max(len(waiting) - 1 - int(rng.expovariate(1 / (back * 200))), 0)
            mine, prompt = waiting.pop(place)
        else:
            conversations += 1
            mine, prompt = conversations, system(number)
        prompt = prompt + parts("turn", mine, len(prompt), length=rng.randint(1, 12))
        yield prompt
        if rng.random() < goes_on:
            waiting.append((mine, prompt))


def chat(rng: random.Random) -> Iterator[Prompt]:
    """Conversations over 200 system prompts, the first ones most often."""
    draw = zipf(rng, 200, 1.0)
    lengths = [rng.randint(2, 30) for _ in range(200)]

    def system(_: int) -> Prompt:
        which = draw()
        return parts("system", which, length=lengths[which])

    return talk(rng, system, 4_000)


def new_templates(rng: random.Random) -> Iterator[Prompt]:
    """Conversations over one long system prompt that is new every day: all of it turns cold."""
    return talk(rng, lambda number: parts("day", number // 600, length=60), 4_000, goes_on=0.4)


def rag(rng: random.Random) -> Iterator[Prompt]:
    """One or two of 1,500 documents, the popular ones often, and a question of its own."""
    draw = zipf(rng, 1_500, 0.9)
    lengths = [rng.randint(3, 20) for _ in range(1_500)]
    for number in range(4_000):
        prompt = parts("system", length=5)
        for _ in range(rng.randint(1, 2)):
            which = draw()
            prompt = prompt + parts("document", which, length=lengths[which])
        yield prompt + parts("question", number, length=2)


def scan(rng: random.Random) -> Iterator[Prompt]:
    """Nothing is ever asked for again."""
    for number in range(2_500):
        yield parts("once", number, length=rng.randint(5, 40))


def scans(rng: random.Random) -> Iterator[Prompt]:
    """Forty hot prefixes, and floods of one-off prompts over them."""
    draw = zipf(rng, 40, 0.8)
    for number in range(5_000):
        flood = (number // 400) % 2 == 1
        if rng.random() < (0.8 if flood else 0.15):
            yield parts("once", number, length=rng.randint(5, 40))
        else:
            yield parts("hot", draw(), length=10) + parts("tail", number, length=rng.randint(0, 4))


def loop(rng: random.Random) -> Iterator[Prompt]:
    """The same documents round and round, so LRU drops each just before it is due."""
    lengths = [rng.randint(10, 20) for _ in range(150)]
    for number in range(3_000):
        which = number % len(lengths)
        yield parts("document", which, length=lengths[which]) + parts("ask", number, length=1)


def shift(rng: random.Random) -> Iterator[Prompt]:
    """Sixty hot prefixes that are sixty others after every 700 requests."""
    draw = zipf(rng, 60, 1.0)
    for number in range(5_000):
        prompt = parts("hot", number // 700, draw(), length=12)
        yield prompt + parts("tail", number, length=rng.randint(0, 6))


def drift(rng: random.Random) -> Iterator[Prompt]:
    """What was asked for lately is asked for again, whatever it was before: LRU's own traffic."""
    recent: list[Prompt] = []
    for number in range(5_000):
        if recent and rng.random() < 0.7:
            prompt = recent.pop(max(len(recent) - 1 - int(rng.expovariate(1 / 40)), 0))
        else:
            prompt = parts("text", number, length=rng.randint(4, 24))
        recent.append(prompt)
        yield prompt


def turncoat(rng: random.Random) -> Iterator[Prompt]:
    """What is asked for twice is a favourite for a while, then worthless, then again."""
    fresh: list[Prompt] = []
    favourites: list[Prompt] = []
    for number in range(6_000):
        friendly = (number // 500) % 2 == 0
        if friendly and favourites and rng.random() < 0.6:
            yield rng.choice(favourites[-80:])
        elif fresh and rng.random() < 0.5:
            again = fresh.pop(max(len(fresh) - 1 - int(rng.expovariate(1 / 15)), 0))
            yield again
            if friendly:
                favourites.append(again)
        else:
            prompt = parts("text", number, length=rng.randint(4, 20))
            yield prompt
            fresh.append(prompt)


def batches(rng: random.Random) -> Iterator[Prompt]:
    """Batch jobs one after another: a task's examples, then all its questions, two rounds."""
    for job in range(30):
        examples = parts("examples", job, length=rng.randint(10, 80))
        asked = [parts("question", job, n, length=rng.randint(2, 6)) for n in range(80)]
        for question in asked:
            yield examples + question
        for question in rng.sample(asked, 40):
            yield examples + question


def search(rng: random.Random) -> Iterator[Prompt]:
    """Tree search: branches from any node of the current tree, then the next problem."""
    for problem in range(60):
        nodes = [parts("problem", problem, length=10)]
        for step in range(80):
            node = nodes[max(len(nodes) - 1 - int(rng.expovariate(1 / 12)), 0)]
            child = node + parts("thought", problem, step, length=rng.randint(1, 5))
            nodes.append(child)
            yield child


def mixture(rng: random.Random) -> Iterator[Prompt]:
    """Agents, conversations, documents and one-off prompts on one server."""
    sources: list[Iterator[Prompt]] = [long_agents(rng), chat(rng), rag(rng), scan(rng)]
    for _ in range(5_000):
        source = rng.choices(sources, weights=(3, 4, 3, 2))[0]
        yield from islice(source, 1)


def shifts_of_work(rng: random.Random) -> Iterator[Prompt]:
    """Chat by day, agents in the evening, batch jobs at night; day after day."""
    day, evening, night = chat(rng), many_agents(rng), batches(rng)
    for _ in range(6):
        yield from islice(day, 500)
        yield from islice(evening, 300)
        yield from islice(night, 250)


SHAPES: dict[str, Callable[[random.Random], Iterator[Prompt]]] = {
    shape.__name__: shape
    for shape in (
        long_agents, many_agents, pausing_agents, chat, new_templates, rag, scan, scans, loop,
        shift, drift, turncoat, batches, search, mixture, shifts_of_work,
    )
}  # fmt: skip


def workload(shape: str, seed: int = 1) -> Workload:
    """A made trace as the simulator's input, one request a second."""
    return chained(SHAPES[shape](random.Random(f"{shape} {seed}")))


def chained(prompts: Iterable[Prompt]) -> Workload:
    """Prompts as chains of contents: a content is a part and all that stands before it."""
    names: dict[tuple[int, Part], int] = {}
    chains: list[list[int]] = []
    for prompt in prompts:
        chain: list[int] = []
        above = -1
        for part in prompt:
            above = names.setdefault((above, part), len(names))
            chain.append(above)
        chains.append(chain)
    return Workload(
        block_tokens=BLOCK_TOKENS,
        arrivals_seconds=[float(number) for number in range(len(chains))],
        input_tokens=[BLOCK_TOKENS * len(chain) + 1 for chain in chains],
        output_tokens=[BLOCK_TOKENS] * len(chains),
        chains=chains,
        contents=len(names),
        owners=[0] * len(chains),
    )


def lines(load: Workload) -> Iterator[str]:
    """A workload as a trace file."""
    for number, chain in enumerate(load.chains):
        line = {
            "timestamp": int(load.arrivals_seconds[number] * 1000),
            "input_length": load.input_tokens[number],
            "output_length": load.output_tokens[number],
            "hash_ids": chain,
        }
        yield json.dumps(line)


def main() -> int:
    if len(sys.argv) > 1:
        if sys.argv[1] not in SHAPES:
            print(f"no shape {sys.argv[1]}; there are {', '.join(SHAPES)}", file=sys.stderr)
            return 2
        print("\n".join(lines(workload(sys.argv[1]))))
        return 0
    print(f"{'shape':16}{'requests':>10}{'blocks asked':>14}{'distinct':>10}{'ceiling':>9}")
    for name in SHAPES:
        load = workload(name)
        asked = sum(map(len, load.chains))
        ceiling = 1 - load.contents / asked
        print(f"{name:16}{len(load):10,}{asked:14,}{load.contents:10,}{ceiling:9.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
