"""The process and its threads bound to one NUMA node, or to one thread of each physical core.

Memory of another node is slower to reach, and two threads of one core share its arithmetic units.
Only cores that the process may use anyway are taken. Ranks take nodes, or their share of the cores,
by LOCAL_RANK. Bound to a node, new memory comes from there as long as it has some. Where torch
would use more threads than cores are left, it uses as many as cores, unless the script or a
variable sets their number. Untested on a machine with more than one node.

Source: numactl(8), set_mempolicy(2), sched_setaffinity(2); torch.distributed's --numa-binding.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from contextlib import suppress

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .cores import nodes_of, one_of_each

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""The number of the system call by machine."""

DEFAULT, PREFERRED = 0, 1
"""Of memory: from where the thread runs, and from one node as long as it has some."""

MAX_NODES = 1024
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def applies(facts: Facts) -> str | None:
    """It applies where there is more than one node, or two threads a core."""
    if space(facts):
        return None
    if facts.num_numa_nodes is None:
        return "It was not observed whether the cores belong to several NUMA nodes."
    if facts.num_physical_cores is None:
        return "One NUMA node holds the cores, and it is not known which are threads of one core."
    return "One NUMA node holds the cores, and each is a physical core."


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return a node where there are several, and one thread a core where there are two."""
    found: list[Settings] = []
    if facts.num_numa_nodes is not None and facts.num_numa_nodes > 1:
        found.append({"to": "node"})
    if facts.num_physical_cores is not None and facts.num_physical_cores < facts.num_cores:
        found.append({"to": "physical_cores"})
    return tuple(found)


def choose(to: str, allowed: set[int], rank: int, ranks: int, root: str = "/") -> list[int]:
    """Return the cores for a rank among those of its machine; all of them if there is no choice."""
    if to == "node":
        nodes = list(nodes_of(allowed, root).values())
        return sorted(nodes[rank % len(nodes)] if nodes else allowed)
    cores = one_of_each(allowed, root)
    share = len(cores) // ranks
    return cores[rank * share : (rank + 1) * share] or cores


def apply(settings: Settings, session: Session) -> Undo:
    """Bind all threads of this process; those that come later, and workers, inherit it."""
    torch, before = session.torch, os.sched_getaffinity(0)
    rank, ranks = number("LOCAL_RANK", 0), max(1, number("LOCAL_WORLD_SIZE", 1))
    to, num_threads = str(settings["to"]), torch.get_num_threads()
    cores = choose(to, before, rank, ranks)
    bind(set(cores))
    nodes = [node for node, own in nodes_of(before).items() if own & set(cores)]
    if to == "node" and nodes:
        prefer_memory(nodes[0])
    is_chosen = any(name in os.environ for name in THREAD_VARIABLES)
    if num_threads > len(cores) and not is_chosen:
        torch.set_num_threads(len(cores))

    def undo() -> None:
        bind(before)
        if to == "node":
            prefer_memory(None)
        torch.set_num_threads(num_threads)

    return undo


def bind(cores: set[int]) -> None:
    """Let each thread of this process run on these cores alone."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.sched_setaffinity(int(thread), cores)


def prefer_memory(node: int | None) -> None:
    """Take new memory of this thread and its children from a node; None: as before.

    A kernel or container that refuses changes nothing: memory then comes from where the thread
    first touches it, which is the same node in most cases.
    """
    call = SET_MEMPOLICY.get(platform.machine())
    if call is None or not sys.platform.startswith("linux"):
        return
    mask = (ctypes.c_ulong * (MAX_NODES // (8 * ctypes.sizeof(ctypes.c_ulong))))()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    if node is not None:
        mask[node // bits] |= 1 << node % bits
    policy = DEFAULT if node is None else PREFERRED
    libc = ctypes.CDLL(None)
    libc.syscall(ctypes.c_long(call), ctypes.c_int(policy), mask, ctypes.c_ulong(MAX_NODES))


def number(name: str, otherwise: int) -> int:
    """Return a launcher's number; `otherwise` where it gives none."""
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else otherwise


def class_here(facts: Facts, settings: Settings) -> Preserves | None:
    """The bits are the same where the number of threads stays."""
    known = facts.num_physical_cores if settings["to"] == "physical_cores" else None
    if facts.world_size > 1 or known is None or facts.num_threads is None:
        return None
    return Preserves.EXACT if facts.num_threads <= known else None


LEVER = Lever(
    name="process_binding",
    title="Bind the process to one NUMA node, or to one thread of each core.",
    relieves=("MEMORY_BANDWIDTH_BOUND",),
    phases=(
        *("forward", "loss", "forward_and_loss", "backward"),
        *("gradient_processing", "optimizer", "other"),
    ),
    preserves=Preserves.NUMERIC,
    class_here=class_here,
    when="The allowed cores belong to several NUMA nodes, or two of them share a physical core. It "
    "is EXACT where the number of threads stays.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        "numactl --cpunodebind=0 --preferred=0 python train.py"
        if settings["to"] == "node"
        else "taskset --cpu-list 0-7 python train.py  # the first thread of each core: lscpu -e"
    ),
    costs="Workers of a DataLoader share those cores. A node may hold too little memory for all, "
    "and another program that is bound to it, too, makes both slower. Untested on several nodes.",
    source="https://man7.org/linux/man-pages/man2/set_mempolicy.2.html",
)
