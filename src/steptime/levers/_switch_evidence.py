"""What levers gave small trainings that they should help, and others.

CPU time of one thread, with quartiles; docs/explanation/tried.md says how.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers.base import LeverEvidence


def _switched(
    training: str, speedup: float, low: float, high: float, remark: str = ""
) -> LeverEvidence:
    """Return a figure of `benchmarks/lever_switches.py`."""
    return LeverEvidence(
        training=training,
        speedup=speedup,
        low=low,
        high=high,
        remark=remark,
        source="benchmarks/results/lever_switches.json",
    )


SWITCHED: Mapping[str, tuple[LeverEvidence, ...]] = {
    "gc_control": (
        _switched("60,000 kept objects, 5,000 new ones a step", 7.08, 6.99, 7.54, "Every 10."),
        _switched("60,000 kept objects, 5,000 new ones a step", 1.61, 1.52, 1.72, "Every one."),
        _switched("60,000 kept objects, 20 new ones a step", 0.81, 0.79, 0.82, "Every one."),
    ),
    "set_to_none": (
        _switched("MLP, 4 layers of 1024, batches of 4", 1.10, 1.08, 1.16),
        _switched("MLP, 12 layers of 64, batches of 8", 0.99, 0.98, 1.01),
        _switched("Two layers of 1500 of which one is idle", 0.66, 0.63, 0.70),
    ),
    "flush_denormal": (
        _switched("Adam, all moments denormal", 3.66, 3.54, 3.73),
        _switched("Adam, all moments normal", 1.00, 0.95, 1.07),
        _switched("Products with denormal weights", 1.00, 0.99, 1.01),
    ),
    "no_anomaly_mode": (
        _switched("MLP, 12 layers of 64, batches of 8", 3.09, 2.81, 3.29),
        _switched("MLP, 4 layers of 768, batches of 256", 1.28, 1.22, 1.46),
    ),
    "no_profiler": (
        _switched("MLP, 12 layers of 64, batches of 8", 2.96, 2.72, 3.39),
        _switched("The same", 7.65, 4.94, 8.83, "With stacks and shapes."),
        _switched("MLP, 2 layers of 512, batches of 256", 1.12, 1.05, 1.19),
    ),
    "no_deterministic": (_switched("20,000 rows added into 500", 1.03, 0.92, 1.08),),
    "vectorized_loops": (
        LeverEvidence(
            training="Bigram model on Shakespeare, 32 windows of 8, two cores beside neighbors",
            speedup=2.13,
            low=2.04,
            high=2.25,
            remark="By tune; losses bit for bit. 2.27 in another study.",
            source="docs/explanation/own-python.md",
        ),
        _switched("Embedding, 64 windows of 32", 1.74, 1.69, 1.79),
        _switched("Embedding, 2 windows of 65,536", 0.98, 0.93, 1.03),
    ),
    "no_checkpointing": (
        _switched("Six blocks of 32, batches of 8", 2.82, 2.77, 2.89),
        _switched("Six blocks of 256, batches of 512", 1.26, 1.22, 1.32),
    ),
}
"""Figures by the name of the lever."""
