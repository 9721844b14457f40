"""Lets OpenMP threads sleep instead of spin while they wait for each other.

By default a thread that is done spins for some milliseconds, in the hope of more work. Where other
programs need the cores too, its spinning delays the very thing it waits for.

Source: OpenMP 5.2 section 21.7 (OMP_WAIT_POLICY),
https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html, and our own measurement: two
spinning threads on two shared cores took 3 to 8 times as long as one; two passive ones took as long
as one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base import Facts, Lever, Moment, Preserves, Settings

VARIABLES = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",  # libgomp, which torch's wheels for Linux contain
    "KMP_BLOCKTIME": "0",  # libiomp and LLVM's; each library ignores the others' variables
}


def applies(facts: Facts) -> str | None:
    """It applies where threads wait for each other and the way is not chosen yet."""
    if facts.device != "cpu":
        return "The arithmetic runs on the device, not in threads of the CPU."
    for name in VARIABLES:
        if name in facts.environment_names:
            return f"{name} is set, so how threads wait stays your choice."
    if facts.num_threads == 1:
        return "Torch uses one thread, which waits for no other thread."
    return None


def variables(settings: Settings, libraries: Mapping[str, str]) -> Mapping[str, str]:
    """Return the same setting in the words of each OpenMP library."""
    return VARIABLES


LEVER = Lever(
    name="wait_policy",
    title="Let idle CPU threads sleep at once instead of spin.",
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
    when="On the CPU with more than one thread; it pays off where other programs share the cores.",
    applies=applies,
    moment=Moment.ENVIRONMENT,
    variables=variables,
    edit=lambda settings: (
        " ".join(f"{name}={value}" for name, value in VARIABLES.items()) + " python train.py"
    ),
    costs=(
        "Waking a thread takes some microseconds more, which slows down many small operators on "
        "a machine of your own."
    ),
    source="https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html",
)
