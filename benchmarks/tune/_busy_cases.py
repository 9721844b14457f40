"""The scripts of busy_studies.py, what is known of each by construction, and their neighbors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One script: what is known of it by construction, and how long its oracle runs.

    `remedy` is the lever that does what the script's own `--remedy` does; None where nothing helps.
    """

    name: str
    what: str
    remedy: str | None
    steps: int = 60
    fails: bool = False


CASES = (
    Case(name="transformer", what="bf16 pays", remedy="autocast"),
    Case(
        name="clicks", what="a worker pays, rows are parsed slowly", remedy="dataloader", steps=600
    ),
    Case(name="pictures", what="a cache of the data set pays", remedy="dataset_cache", steps=800),
    Case(name="slow_steps", what="bf16 pays, seconds a step", remedy="autocast", steps=12),
    Case(name="rows", what="whole batches pay", remedy="whole_batch_fetch", steps=1500),
    Case(name="crashes", what="it ends with an error", remedy=None, fails=True),
    Case(name="done_already", what="nothing helps", remedy=None),
    Case(name="checkpoints", what="bf16 pays, a checkpoint each step", remedy="autocast"),
)


# -- neighbors

BURN = """
import random, sys, time
chance = random.Random(int(sys.argv[1]))
block = bytearray(8 << 20)
while True:
    until = time.monotonic() + chance.uniform(4, 20)
    while time.monotonic() < until:
        sum(block[::4096])
        block[:1 << 20] = block[1 << 20 : 2 << 20]
    time.sleep(chance.uniform(2, 12))
"""


@contextmanager
def neighbors(num: int, seed: int) -> Iterator[None]:
    """Keep processes running that burn CPU for 4 to 20 s and then sleep for 2 to 12."""
    children = [
        subprocess.Popen([sys.executable, "-c", BURN, str(seed * 100 + number)])
        for number in range(num)
    ]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()
