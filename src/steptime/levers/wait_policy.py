"""Lets the threads of OpenMP sleep, not spin, while they wait for each other.

By default a thread that is done spins for some milliseconds in the hope of more work. Where other
programs want the cores too, what it waits for is held up by its own spinning.

Source: OpenMP 5.2 section 21.7 (OMP_WAIT_POLICY),
https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html, and our own measurement: two
spinning threads on two shared cores took 3 to 8 times as long as one; passive ones as long.
"""

from __future__ import annotations

from collections.abc import Mapping

from .base import Facts, Lever, Moment, Preserves, Settings

VARIABLES = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",  # libgomp, which torch's wheels for Linux bring
    "KMP_BLOCKTIME": "0",  # libiomp and LLVM's; each library ignores the others' words
}


def applies(facts: Facts) -> str | None:
    """Where threads wait for each other, and nobody has said how."""
    if facts.device != "cpu":
        return "The arithmetic runs on the device, not in threads of the CPU."
    for name in VARIABLES:
        if name in facts.environment_names:
            return f"{name} is set: how threads wait is your choice."
    if facts.num_threads is None:
        return "How many threads torch uses was not seen."
    if facts.num_threads == 1:
        return "torch uses one thread, which waits for no other."
    return None


def variables(settings: Settings, libraries: Mapping[str, str]) -> Mapping[str, str]:
    """The same wish in the words of each OpenMP library."""
    return VARIABLES


LEVER = Lever(
    name="wait_policy",
    title="Let idle threads of the CPU sleep at once, not spin.",
    relieves=("CONTENDED", "HOST_BOUND", "COMPUTE_BOUND"),
    phases=(
        "forward",
        "loss",
        "forward_and_loss",
        "backward",
        "gradient_processing",
        "optimizer",
        "other",
    ),
    preserves=Preserves.EXACT,
    when="On the CPU with more than one thread; it pays where other programs share the cores.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.ENVIRONMENT,
    variables=variables,
    edit=lambda settings: (
        " ".join(f"{name}={value}" for name, value in VARIABLES.items()) + " python train.py"
    ),
    costs=(
        "Waking a thread takes some microseconds more, which many small operators feel on a "
        "machine of one's own."
    ),
    source="https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html",
)
