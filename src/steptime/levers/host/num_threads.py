"""The number of threads that share one operator's work on the CPU.

Torch takes one thread for each core. That is right on a machine of one's own, and wrong beside
other programs or for operators too small to share. Threads between operators are left alone.

Source: https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html and
our own measurement: two threads on two cores gave x1.7 to x1.8 alone, x0.1 to x0.3 when shared.
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def applies(facts: Facts) -> str | None:
    """It applies where torch chose the number and there is another one to try."""
    if facts.device != "cpu":
        return "The arithmetic runs on the device, not in threads of the CPU."
    if facts.sets_threads:
        return "The script sets the number of threads itself."
    for name in THREAD_VARIABLES:
        if name in facts.environment_names:
            return f"{name} is set, so the number of threads stays your choice."
    if not space(facts):
        return f"Each process has one core, and torch uses {facts.num_threads} thread."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return one, half the cores, the physical cores and all cores, without the current number."""
    cores = max(1, facts.num_cores // facts.world_size)
    physical = max(1, (facts.num_physical_cores or facts.num_cores) // facts.world_size)
    counts = {1, max(1, cores // 2), min(physical, cores), cores} - {facts.num_threads}
    return tuple({"num_threads": count} for count in sorted(counts))


def apply(settings: Settings, session: Session) -> Undo:
    """Set the number for the thread that trains."""
    torch = session.torch
    before = torch.get_num_threads()
    torch.set_num_threads(int(settings["num_threads"]))
    return lambda: torch.set_num_threads(before)


LEVER = Lever(
    name="num_threads",
    title="Share each operator's work on the CPU among another number of threads.",
    relieves=("HOST_BOUND", "COMPUTE_BOUND", "CONTENDED"),
    phases=(
        "forward",
        "loss",
        "forward_and_loss",
        "backward",
        "gradient_processing",
        "optimizer",
        "other",
    ),
    preserves=Preserves.NUMERIC,
    when="On the CPU, where neither the script nor a variable sets the number of threads.",
    applies=applies,
    space=space,
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: (
        f"torch.set_num_threads({settings['num_threads']})  # before the first operator"
    ),
    costs=(
        "More threads need free cores: if they share cores with other programs, they wait for "
        "each other and can be several times slower. Sums are added up in another order."
    ),
    source="https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html",
)
