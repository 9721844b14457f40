"""What levers gave small trainings that they should help, and others.

CPU time, with quartiles; docs/explanation/tried.md says how. The figures stand in `_own_figures.py`
by the names of the benchmarks' cases; a case that was not measured yet has no row.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers._evidence import gave
from steptime.levers._own_figures import FIGURES
from steptime.levers.base import LeverEvidence

Row = tuple[str, str, str]
"""What was trained, the case of the benchmark, and what else one must know; or no more."""

_GAMES = "60,000 kept objects, 5,000 new ones a step"
_FEW = "60,000 kept objects, 20 new ones a step"
_PRODUCTS = "Two layers of 1024, batches of 1024"
_TWELVE = "Layers on each token, compiled for one size, twelve lengths in turn"
_TWO_RANKS = "MLP, 4 layers of 1024, two gloo ranks, CPU time of both"
_SLOW = "MLP, 16 layers of 1024, batches of 256, two gloo ranks on 2 Gbit/s, wall time"
_TWO_SMALL = "MLP, 4 layers of 64, two gloo ranks, CPU time of both"
_GPT256 = "GPT, 6 layers of 256, batches of 8 x 64, CPU time of one thread"
_LAYER = "Transformer, one layer of 64, compiled for one size, three lengths in turn"
_WATCHED = "Eight layers of 16 and a number read after each, compiled"
_GATES = "Gates and norms written out, compiled"
_OUTWEIGHED = "It only takes work away, and so cannot hurt; here the products outweigh that work."
_BREAK = "The later steps alone."

SWITCHES: Mapping[str, tuple[Row, ...]] = {
    "gc_control": (
        (_GAMES, _GAMES, "Every 10."),
        (_GAMES, f"{_GAMES.removesuffix(' a step')}, each update", "Every one."),
        (_FEW, f"{_FEW}, each update", "Every one."),
    ),
    "set_to_none": (
        ("MLP, 4 layers of 1024, batches of 4", "large gradients, batch of 4", ""),
        ("MLP, 12 layers of 64, batches of 8", "small gradients", ""),
        ("Two layers of 1500 of which one is idle", "half of the layers idle", ""),
    ),
    "flush_denormal": (
        ("Adam, all moments denormal", "denormal moments in Adam", ""),
        ("Adam, all moments normal", "normal moments in Adam", ""),
        ("Products with denormal weights", "denormal weights", ""),
        (
            "Products with normal weights",
            "products without denormals",
            "It sets a bit of the processor once, and so cannot hurt.",
        ),
    ),
    "no_anomaly_mode": (
        ("MLP, 12 layers of 64, batches of 8", "small layers", ""),
        ("MLP, 4 layers of 768, batches of 256", "large layers", ""),
        (_PRODUCTS, "large products", _OUTWEIGHED),
    ),
    "no_profiler": (
        ("MLP, 12 layers of 64, batches of 8", "small layers", ""),
        ("MLP, 12 layers of 64, batches of 8", "stacks and shapes", "With stacks and shapes."),
        ("MLP, 2 layers of 512, batches of 256", "large layers", ""),
        (_PRODUCTS, "large products", _OUTWEIGHED),
    ),
    "no_deterministic": (
        ("20,000 rows added into 500", "sums into a table", ""),
        (_PRODUCTS, "large products", "On a CPU these operators are the same in both modes."),
        (
            "64 images of 9 x 84 x 84, padded by reflection and shifted",
            "images shifted",
            "The mode fills new memory before it is written.",
        ),
        (
            "Room for 1024 positions of which 128 are filled in and used",
            "room for the longest row",
            "The mode fills all of it.",
        ),
    ),
    "vectorized_loops": (
        ("Embedding, 64 windows of 32", "64 windows of 32", ""),
        ("Embedding, 2 windows of 65,536", "2 windows of 65,536", ""),
    ),
    "no_checkpointing": (
        ("Six blocks of 32, batches of 8", "six blocks of 32, batch of 8", ""),
        ("Six blocks of 256, batches of 512", "six blocks of 256, batch of 512", ""),
        (
            "Six layers of 768, and a small head that is checkpointed",
            "a small head alone",
            "It only takes work away; what it costs is memory.",
        ),
    ),
    "no_pin_memory": (
        ("Batches of 1 MiB on a CPU without a device", "no accelerator", "Torch pins nothing."),
        (
            "Batches of 1 MiB on the CPU of a machine with a device",
            "an accelerator that is not used",
            "",
        ),
    ),
}
"""Cases of `benchmarks/lever_switches.py` by the lever."""

COMPILED: Mapping[str, tuple[Row, ...]] = {
    "dynamic_shapes": (
        (f"{_TWELVE}, 132 steps", "twelve lengths: whole", "Compiling is counted."),
        (_TWELVE, "twelve lengths: step", f"{_BREAK} Torch ran four lengths eagerly before."),
        (
            "The same, compiled by default, three lengths and smaller last batches, 132 steps",
            "lengths and last batches: whole",
            "Compiling is counted. Torch finds out by itself what varies.",
        ),
        (
            "The same, compiled by default, three lengths and smaller last batches",
            "lengths and last batches: step",
            _BREAK,
        ),
        (
            f"{_LAYER}, 210 steps",
            "three lengths: whole",
            "Compiling is counted.",
        ),
        (_LAYER, "three lengths: step", f"{_BREAK} Each length had a graph of its own before."),
    ),
    "no_compile": (
        (f"{_WATCHED}, 100 steps", "graph breaks, few steps: whole", "Compiling is counted."),
        (_WATCHED, "graph breaks, few steps: step", _BREAK),
        (f"{_TWELVE}, 132 steps", "twelve lengths, eager: whole", "Compiling is counted."),
        (_TWELVE, "twelve lengths, eager: step", _BREAK),
        (f"{_GATES}, 6000 steps", "fused operators: whole", "Compiling is counted."),
        (_GATES, "fused operators: step", _BREAK),
    ),
}
"""Cases of `benchmarks/own_compile.py` by the lever, and what of them."""

RANKS: Mapping[str, tuple[Row, ...]] = {
    "module_precision": (
        (_GPT256, "bf16 with low embeddings", "With low embeddings."),
        (_GPT256, "bf16 except ends", "Except both ends."),
        (
            "MLP, 4 layers of 64, batches of 32, CPU time of one thread",
            "bf16 except ends, small",
            "Except both ends: short operators pay for the casts.",
        ),
        (
            "GPT, 2 layers of 64, vocabulary of 20,000, CPU time of one thread",
            "bf16 except ends, large vocabulary",
            "Except both ends, of which the last takes most of the time.",
        ),
    ),
    "ddp_options": (
        (_TWO_RANKS, "bucket views", "Bucket views."),
        (_TWO_SMALL, "bucket views, small", "Bucket views."),
        (_TWO_SMALL, "static graph, small", "A static graph instead of a search."),
        (
            "MLP, 4 layers of 64, batches of 8192, two gloo ranks, CPU time of both",
            "bucket views, large batch",
            "Bucket views, where the exchange is a small part.",
        ),
        (
            "MLP, 60 layers of 256, two gloo ranks, CPU time of both",
            "buckets of 4 MiB, deep",
            "Bucket views, and four buckets in place of one.",
        ),
        (_SLOW, "buckets of 4 MiB, on 2 Gbit/s", "Bucket views, and buckets of 4 MiB."),
        (
            _SLOW,
            "buckets of 100 MiB, on 2 Gbit/s",
            "Bucket views, and one bucket, which waits for the end of the backward pass.",
        ),
    ),
    "ddp_bf16": (
        (_SLOW, "bf16 exchange, on 2 Gbit/s", "Half as many bytes on a network that is slow."),
    ),
}
"""Cases of `benchmarks/ranks_and_memory_levers.py` by the lever."""

CASES: Mapping[str, Mapping[str, tuple[Row, ...]]] = {
    "lever_switches": SWITCHES,
    "own_compile": COMPILED,
    "ranks_and_memory_levers": RANKS,
}


def case_name(file: str, lever: str, case: str) -> str:
    """Return the name of a case in `FIGURES`: ranks and memory have names of their own."""
    return case if CASES[file] is RANKS else f"{lever}: {case}"


def words_of(kept: float | None) -> str:
    """Return in words how much is kept for the backward; empty where that was not measured."""
    return "" if kept is None else f"It keeps {kept:.1f} times as much for the backward. "


def _rows(file: str, lever: str, row: Row) -> list[LeverEvidence]:
    """Return the figures of a case, one of each machine."""
    training, case, remark = row
    found = FIGURES.get(file, {}).get(case_name(file, lever, case), ())
    source = f"benchmarks/results/{file}.json"
    return [
        gave(training, source, speedup, low, high, f"{remark} {words_of(kept)}{cpu}.".lstrip())
        for cpu, speedup, low, high, kept in found
    ]


_BIGRAM = gave(
    "Bigram model on Shakespeare, 32 windows of 8, two cores beside neighbors",
    "docs/explanation/own-python.md",
    2.13,
    2.04,
    2.25,
    "By tune; losses bit for bit. 2.27 in another study.",
)

SWITCHED: Mapping[str, tuple[LeverEvidence, ...]] = {
    lever: (
        *([_BIGRAM] if lever == "vectorized_loops" else ()),
        *(one for row in rows for one in _rows(file, lever, row)),
    )
    for file, levers in CASES.items()
    for lever, rows in levers.items()
}
"""Figures by the name of the lever."""
