"""Two small trainings in numpy, for `search_regret.py`: as functions, and as a command.

    python benchmarks/tune/_search_trainings.py network --lr 0.1 --bs 32 --momentum 0.5 --seed 1

As a command, each step also sleeps as long as the simulated clock counts for it, so that the
command behaves like a training of seconds on a machine that others use too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy

START_S = 0.5
Values = Mapping[str, str]


def step_s(values: Values) -> float:
    """Return how long a step takes by its batch [s]."""
    return 0.010 + 0.0003 * int(values["bs"])


@cache
def digits() -> tuple[numpy.ndarray, ...]:
    """Ten noisy prototypes of 64 pixels: pictures and classes to train on, and to evaluate on."""
    chance = numpy.random.default_rng(7)
    prototypes = chance.normal(0, 1, (10, 64))
    labels = chance.integers(0, 10, 2400)
    pictures = prototypes[labels] + chance.normal(0, 2.2, (2400, 64))
    return pictures[:1600], labels[:1600], pictures[1600:], labels[1600:]


def network(values: Values, seed: int) -> Iterator[tuple[int, float]]:
    """Train 64-48-10 with momentum; yield steps and validation loss after each 10 steps."""
    x, y, val_x, val_y = digits()
    rate, size, momentum = float(values["lr"]), int(values["bs"]), float(values["momentum"])
    chance = numpy.random.default_rng(seed)
    weights = [chance.normal(0, 1 / 8, (64, 48)), chance.normal(0, 1 / 7, (48, 10))]
    speeds = [numpy.zeros_like(one) for one in weights]

    def forward(pictures: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        hidden = numpy.maximum(pictures @ weights[0], 0)
        scores = hidden @ weights[1]
        scores = numpy.exp(scores - scores.max(1, keepdims=True))
        return hidden, scores / scores.sum(1, keepdims=True)

    for step in range(1, 401):
        pick = chance.integers(0, len(x), size)
        hidden, likely = forward(x[pick])
        likely[numpy.arange(size), y[pick]] -= 1
        inner = (likely @ weights[1].T) * (hidden > 0)
        for one, gradient in enumerate((x[pick].T @ inner / size, hidden.T @ likely / size)):
            speeds[one] = momentum * speeds[one] - rate * gradient
            weights[one] = weights[one] + speeds[one]
        if step % 10 == 0:
            _, likely = forward(val_x)
            chosen = numpy.maximum(likely[numpy.arange(len(val_y)), val_y], 1e-12)
            yield step, float(-numpy.log(chosen).mean())


@cache
def ratings() -> tuple[numpy.ndarray, ...]:
    """Ratings of 120 people of 80 things, of rank 5 with noise: half to train on, half not."""
    chance = numpy.random.default_rng(11)
    people, things = chance.normal(0, 1, (120, 5)), chance.normal(0, 1, (80, 5))
    pairs = numpy.array([(p, t) for p in range(120) for t in range(80)])
    chance.shuffle(pairs)
    told = (people[pairs[:, 0]] * things[pairs[:, 1]]).sum(1) + chance.normal(0, 0.5, len(pairs))
    return pairs[:4800], told[:4800], pairs[4800:], told[4800:]


def factors(values: Values, seed: int) -> Iterator[tuple[int, float]]:
    """Factorize with Adam; yield steps and validation error after each 10 steps."""
    pairs, told, val_pairs, val_told = ratings()
    rate, size, decay = float(values["lr"]), int(values["bs"]), float(values["decay"])
    chance = numpy.random.default_rng(seed)
    tables = [chance.normal(0, 0.3, (120, 8)), chance.normal(0, 0.3, (80, 8))]
    firsts = [numpy.zeros_like(one) for one in tables]
    seconds = [numpy.zeros_like(one) for one in tables]
    for step in range(1, 501):
        pick = chance.integers(0, len(pairs), size)
        rows = pairs[pick, 0], pairs[pick, 1]
        sides = [tables[0][rows[0]], tables[1][rows[1]]]
        wrong = (sides[0] * sides[1]).sum(1) - told[pick]
        for one in (0, 1):
            gradient = numpy.zeros_like(tables[one])
            numpy.add.at(gradient, rows[one], wrong[:, None] * sides[1 - one] * (40 / size))
            gradient += decay * tables[one]
            firsts[one] = 0.9 * firsts[one] + 0.1 * gradient
            seconds[one] = 0.99 * seconds[one] + 0.01 * gradient**2
            upward = firsts[one] / (1 - 0.9**step)
            tables[one] = tables[one] - rate * upward / (
                numpy.sqrt(seconds[one] / (1 - 0.99**step)) + 1e-8
            )
        if step % 10 == 0:
            guess = (tables[0][val_pairs[:, 0]] * tables[1][val_pairs[:, 1]]).sum(1)
            yield step, float(numpy.sqrt(((guess - val_told) ** 2).mean()))


TRAININGS: Mapping[str, Callable[[Values, int], Iterator[tuple[int, float]]]] = {
    "network": network,
    "factors": factors,
}


def main() -> None:
    """Train, print each evaluation, and sleep as long as the clock of the benchmark counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("training", choices=sorted(TRAININGS))
    for name in ("lr", "bs", "momentum", "decay", "seed"):
        parser.add_argument(f"--{name}", default="0")
    given = vars(parser.parse_args())
    last = 0
    with numpy.errstate(all="ignore"):
        for step, value in TRAININGS[given["training"]](given, int(given["seed"])):
            time.sleep((step - last) * step_s(given))
            last = step
            print(f"step {step} val {value:.5f}", flush=True)


if __name__ == "__main__":
    main()
