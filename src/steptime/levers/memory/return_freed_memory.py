"""Large blocks go back to the system when they are freed, instead of staying in the C allocator.

glibc raises its own threshold, up to 32 MiB, with each large block that is freed. From then on
smaller blocks come from its heap, where free pieces lie between used ones and cannot be given back.
With a fixed threshold each large block is a mapping of its own, so nothing is kept and nothing is
in pieces. The price is that the system clears these pages again in the next step.

Source: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, and our own measurement: an MLP of 8
blocks on batches of 16384 x 128 peaked at 0.60 GiB of private memory instead of 0.85 GiB, and took
3 % more CPU time.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base import Facts, Lever, Moment, Preserves, Settings
from ..tools.memory_room import why_memory_suffices

VARIABLES = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 20)}
"""1 MiB: with 128 KiB the peak was the same, and more blocks cost a system call."""

OTHERS = ("MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def applies(facts: Facts) -> str | None:
    """It applies where memory is short, glibc gives it out, and the way is not chosen yet."""
    if facts.device != "cpu":
        return "The tensors are in the device's memory, which the C allocator does not give out."
    if "glibc" not in facts.libraries:
        return "The C library is not glibc, or was not found."
    own = sorted({*VARIABLES, *OTHERS} & set(facts.environment_names))
    if own:
        return f"{', '.join(own)} is set, so how memory is given out stays your choice."
    return why_memory_suffices(facts)


def variables(settings: Settings, libraries: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of glibc."""
    return VARIABLES


LEVER = Lever(
    name="return_freed_memory",
    title="Give freed blocks back to the system instead of keeping them in the C allocator.",
    relieves=("MEMORY_CAPACITY_BOUND",),
    phases=("forward", "loss", "forward_and_loss", "backward", "optimizer", "other"),
    preserves=Preserves.EXACT,
    when="On the CPU with glibc, where memory is short.",
    applies=applies,
    moment=Moment.ENVIRONMENT,
    judged_by_cpu_time=True,
    variables=variables,
    edit=lambda settings: (
        " ".join(f"{name}={value}" for name, value in VARIABLES.items()) + " python train.py"
    ),
    costs="The system clears the pages of each large block again: a few percent of CPU time, more "
    "where steps are short.",
    source="https://man7.org/linux/man-pages/man3/mallopt.3.html",
)
