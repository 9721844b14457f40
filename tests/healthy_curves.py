"""Losses of healthy trainings of many shapes, drawn with a seed: none of them deserves an alarm."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Shape = Callable[[random.Random, int], list[float]]


def _student(rng: random.Random, degrees: int) -> float:
    """A number with heavy tails."""
    chi = sum(rng.gauss(0, 1) ** 2 for _ in range(degrees))
    return rng.gauss(0, 1) / math.sqrt(chi / degrees)


def _drift(rng: random.Random, n: int, *, memory: float, size: float) -> list[float]:
    """Noise with a memory, as trainings that play against each other have."""
    found, now = [], 0.0
    for _ in range(n):
        now = memory * now + rng.gauss(0, size)
        found.append(now)
    return found


def language_model(rng: random.Random, n: int) -> list[float]:
    return [2 + 8 * (t + 1) ** -0.35 + rng.gauss(0, 0.06) for t in range(n)]


def cosine(rng: random.Random, n: int) -> list[float]:
    return [
        1.5 + 2 * (t + 1) ** -0.2 + 0.3 * math.cos(math.pi * t / n) + rng.gauss(0, 0.05)
        for t in range(n)
    ]


def warmup(rng: random.Random, n: int) -> list[float]:
    return [
        7 - 3 * (1 - math.exp(-t / 300)) + 2 * math.exp(-(((t - 60) / 30) ** 2)) + rng.gauss(0, 0.1)
        for t in range(n)
    ]


def restarts(rng: random.Random, n: int) -> list[float]:
    """The loss rises by a multiple of its noise at each restart, within some ten updates."""
    found = []
    for t in range(n):
        since = t % 250
        high = 0.5 * (1 - math.exp(-since / 8)) * (1 + math.cos(math.pi * since / 250)) / 2
        found.append(0.6 + 1.7 * math.exp(-t / 150) + high + rng.gauss(0, 0.04))
    return found


def growing_restarts(rng: random.Random, n: int) -> list[float]:
    found, begin, period = [], 0, 100
    for t in range(n):
        if t - begin == period:
            begin, period = t, 2 * period
        since = (t - begin) / period
        high = 0.4 * (1 + math.cos(math.pi * since)) / 2 * (1 - math.exp(-(t - begin) / 5))
        found.append(0.3 + 2 * math.exp(-t / 100) + high + rng.gauss(0, 0.05))
    return found


def gan_discriminator(rng: random.Random, n: int) -> list[float]:
    drift = _drift(rng, n, memory=0.9, size=0.12)
    return [abs(1.2 + drift[t] + 0.2 * _student(rng, 4)) for t in range(n)]


def gan_generator(rng: random.Random, n: int) -> list[float]:
    drift = _drift(rng, n, memory=0.97, size=0.15)
    return [max(0.05, 1 + 2 * t / n + drift[t] + 0.4 * abs(_student(rng, 3))) for t in range(n)]


def critic(rng: random.Random, n: int) -> list[float]:
    drift = _drift(rng, n, memory=0.8, size=0.5)
    return [-20 * (1 - math.exp(-t / 200)) * math.exp(-t / n) + drift[t] for t in range(n)]


def policy(rng: random.Random, n: int) -> list[float]:
    return [0.02 * _student(rng, 4) for _ in range(n)]


def value_function(rng: random.Random, n: int) -> list[float]:
    return [(0.5 + t / n) * math.exp(0.8 * rng.gauss(0, 1)) for t in range(n)]


def q_learning(rng: random.Random, n: int) -> list[float]:
    """The targets are copied every 250 updates, and the values grow."""
    return [
        (0.2 + 6 * t / n) * (1 + 0.8 * math.exp(-(t % 250) / 40)) * math.exp(0.5 * rng.gauss(0, 1))
        for t in range(n)
    ]


def small_batches(rng: random.Random, n: int) -> list[float]:
    return [(0.3 + 2 * math.exp(-t / 300)) * math.exp(0.6 * rng.gauss(0, 1)) for t in range(n)]


def fine_tuning(rng: random.Random, n: int) -> list[float]:
    return [0.9 + 0.1 * rng.gauss(0, 1) for _ in range(n)]


def epochs(rng: random.Random, n: int) -> list[float]:
    return [2.5 * 0.75 ** (t // 150) + rng.gauss(0, 0.08) for t in range(n)]


def step_schedule(rng: random.Random, n: int) -> list[float]:
    levels = (1.0, 0.5, 0.35)
    return [levels[3 * t // n] + math.exp(-t / 60) + rng.gauss(0, 0.05) for t in range(n)]


def diffusion(rng: random.Random, n: int) -> list[float]:
    return [
        (0.02 + 0.5 * math.exp(-t / 100)) * (0.2 + rng.random() ** 3 * 6) * (1 + 0.1 * rng.random())
        for t in range(n)
    ]


def contrastive(rng: random.Random, n: int) -> list[float]:
    return [max(0.0, 4 / (1 + t / 200) + 0.3 / (1 + t / 400) * _student(rng, 3)) for t in range(n)]


def regression(rng: random.Random, n: int) -> list[float]:
    return [math.exp(-12 * t / n) * math.exp(0.3 * rng.gauss(0, 1)) + 1e-7 for t in range(n)]


def curriculum(rng: random.Random, n: int) -> list[float]:
    """Each stage is harder: the loss rises by a third within twenty updates."""
    found, level = [], 2.0
    for t in range(n):
        since = t % 300
        if since == 0 and t:
            level *= 0.75
        found.append(level * (0.6 + 0.4 * math.exp(-since / 80)) + rng.gauss(0, 0.06))
    return found


def hinge(rng: random.Random, n: int) -> list[float]:
    """Most losses are zero exactly; the others are not."""
    return [
        max(0.0, rng.gauss(0.3 * math.exp(-t / 200) - 0.1, 0.3)) if rng.random() < 0.4 else 0.0
        for t in range(n)
    ]


SHAPES: tuple[Shape, ...] = (
    *(language_model, cosine, warmup, restarts, growing_restarts, gan_discriminator),
    *(gan_generator, critic, policy, value_function, q_learning, small_batches, fine_tuning),
    *(epochs, step_schedule, diffusion, contrastive, regression, curriculum, hinge),
)


def draw(shape: Shape, *, seed: int, n: int) -> list[float]:
    """The losses of one training."""
    return shape(random.Random(f"{shape.__name__} {seed}"), n)
