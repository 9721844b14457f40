"""Checks threads against cores: too many, spinning, or far from their memory and their GPU.

In: facts. Out: judgements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine._files import format_cpu_list, parse_cpu_list
from steptime.machine.checks.check_row import (
    OWN,
    CheckRow,
    Judgement,
    Value,
    asked_gpus,
    clean,
    driven_gpus,
    fires,
    is_on,
    not_applicable,
    not_checked,
    plural,
    software_of,
    version_of,
)
from steptime.machine.checks.node.limits_raised import more_cores
from steptime.machine.checks.remedy import by_user, in_shell, unset
from steptime.machine.values.ceiling_values import QUIET_CORES
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Command, Cost, Disruption
from steptime.machine.values.inventory_values import Gpu, NumaNode
from steptime.record.numbers_told import whole_number_in

_TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
_SPIN = Cost(
    of="step",
    low=3.0,
    high=8.0,
    source=f"{OWN} (MLP, 2 spinning threads against 1 while others used the cores)",
)
_BINDING = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_BIND = Cost(of="step", low=1.01, high=1.10, source="torch/numa/binding.py (typically 1 to 10 %)")
_BINDING_SINCE = (2, 9)

_BIND_EACH = (
    "Bind each process to one node, that of its GPU where it has one: `torchrun "
    "--numa-binding=node` does so from torch 2.9 on, and `numactl` by hand."
)

_THROTTLED = 0.05  # of the periods: below it, at most one step in twenty was cut


def _threads_over_cores(facts: CheckFacts) -> Judgement:
    software = software_of(facts)
    if isinstance(software, partial):
        return software
    usable = facts.inventory.cpu.num_usable
    threads, ranks = software.num_threads, _ranks_here(facts)
    if threads is None:
        return not_checked("torch_did_not_tell")
    run = facts.run.measurement if facts.run is not None else None
    if run is not None and run.ranks and run.ranks[0].num_threads is not None and ranks > 1:
        threads = run.ranks[0].num_threads
    seen: dict[str, Value] = {"num_threads": threads, "num_ranks": ranks, "num_usable": usable}
    if threads * ranks <= usable:
        return clean(seen)
    # A task of Slurm's may use fewer cores than its shell sees.
    of_task = whole_number_in(facts.environment.get("SLURM_CPUS_PER_TASK")) or usable
    each = max(1, min(usable // ranks, of_task))
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen=seen,
        commands=(in_shell(f"export OMP_NUM_THREADS={each}"),),
    )


def _ranks_here(facts: CheckFacts) -> int:
    """Return the last run's ranks on the processor: ranks on GPUs leave the cores to others."""
    if facts.run is None or facts.run.device != "cpu":
        return 1
    return max(1, facts.run.measurement.num_ranks)


def _spin_waiting(facts: CheckFacts) -> Judgement:
    software = software_of(facts)
    if isinstance(software, partial):
        return software
    threads, others = software.num_threads, facts.system.others_cores
    if threads is None or others is None:
        return not_checked("load_not_told")
    if threads < 2:
        return not_applicable("one_thread")
    if _waits_asleep(facts):
        return clean({"wait_policy": "passive"})
    allowed = len(parse_cpu_list(facts.inventory.limits.cpus))
    if 0 < allowed < facts.inventory.cpu.num_threads:
        return not_checked("load_of_other_cores")  # others may keep cores busy that are not ours
    others = min(others, facts.inventory.cpu.num_threads)  # ticks in a second are rounded
    free = facts.inventory.cpu.num_threads - others
    seen: dict[str, Value] = {
        "num_threads": threads,
        "others_cores": round(others, 2),
        "num_cores": facts.inventory.cpu.num_threads,
    }
    if others <= QUIET_CORES or free >= threads - QUIET_CORES:
        return clean(seen)
    # The training itself may be busy now; the last run knows what others took from it.
    host = facts.run.measurement.host if facts.run is not None else None
    was_busy = None if host is None else host.others_cores > QUIET_CORES
    if host is not None:
        seen["run_others_cores"] = round(host.others_cores, 2)
    return fires(
        Severity.INFO if was_busy is False else Severity.WARNING,
        Certainty.LIKELY if was_busy else Certainty.POSSIBLE,
        seen=seen,
        cost=_SPIN,
        commands=(in_shell("export OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 KMP_BLOCKTIME=0"),),
    )


def _waits_asleep(facts: CheckFacts) -> bool:
    environment = facts.environment
    if environment.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE":
        return True
    return "0" in (environment.get("GOMP_SPINCOUNT"), environment.get("KMP_BLOCKTIME"))


def _quota_below_cores(facts: CheckFacts) -> Judgement:
    limits = facts.inventory.limits
    if limits.cpu_quota_cores is None:
        return not_applicable("no_quota")
    allowed = len(parse_cpu_list(limits.cpus)) or facts.inventory.cpu.num_threads
    seen: dict[str, Value] = {
        "quota_cores": round(limits.cpu_quota_cores, 2),
        "num_cores": allowed,
    }
    if limits.cpu_quota_cores >= allowed:
        return clean(seen)
    stopped = facts.system.throttled_fraction
    if stopped is not None:
        seen["throttled_fraction"] = round(stopped, 3)
    is_felt = stopped is not None and stopped > _THROTTLED
    threads = facts.software.num_threads if facts.software is not None else None
    is_over = threads is not None and threads > math.ceil(limits.cpu_quota_cores)
    if threads is not None:
        seen["num_threads"] = threads
    return fires(
        Severity.WARNING if is_felt or is_over else Severity.INFO,
        Certainty.CERTAIN if is_felt else Certainty.LIKELY if is_over else Certainty.POSSIBLE,
        seen=seen,
        commands=(
            in_shell(f"export OMP_NUM_THREADS={max(1, math.floor(limits.cpu_quota_cores))}"),
        ),
        advice=(more_cores(facts, allowed),),
    )


def _affinity_across_nodes(facts: CheckFacts) -> Judgement:
    nodes = [node for node in facts.inventory.numa if parse_cpu_list(node.cpus)]
    if len(nodes) < 2:
        return not_applicable("one_numa_node")
    spanned = [node for node in nodes if _overlaps(facts, node)]
    seen: dict[str, Value] = {
        "num_nodes": len(nodes),
        "num_spanned": len(spanned),
        "cpus": facts.inventory.limits.cpus or "all",
    }
    if len(spanned) < 2 or _is_bound(facts):
        return clean(seen)
    command = _bind_to_node(facts, spanned)
    return fires(
        Severity.WARNING if driven_gpus(facts) else Severity.INFO,
        Certainty.LIKELY if len(driven_gpus(facts)) > 1 else Certainty.POSSIBLE,
        seen=seen,
        cost=_BIND,
        commands=() if command is None else (command,),
        advice=(_BIND_EACH,) if command is None else (),
    )


def _bind_to_node(facts: CheckFacts, spanned: Sequence[NumaNode]) -> Command | None:
    """Return the command that binds each process near its GPU; None if the node is not certain."""
    gpus = driven_gpus(facts)
    software = facts.software
    num = _num_processes(facts)
    version = version_of(None if software is None else software.torch)[:2]
    if num is not None and version >= _BINDING_SINCE:
        line = f"torchrun --numa-binding=node --nproc-per-node {num} train.py"
        return by_user(line, Disruption.LOAD)
    near = _node_of(gpus[0], spanned) if len(gpus) == 1 else None
    # In a container the kernel may forbid what numactl asks for.
    if near is None or facts.inventory.limits.container is not None:
        return None
    line = f"numactl --cpunodebind={near} --preferred={near} python train.py"
    return by_user(line, Disruption.LOAD)


def _num_processes(facts: CheckFacts) -> str | None:
    """Return how many processes to start on GPUs; None where some of the GPUs may be others'."""
    if not driven_gpus(facts):
        return None
    if facts.run is not None and facts.run.device == "cuda":
        return str(facts.run.measurement.num_ranks)
    return "gpu" if facts.site.in_job or not facts.site.is_shared else None


def _node_of(gpu: Gpu, nodes: Sequence[NumaNode]) -> int | None:
    """Return the node of these that the GPU is near."""
    near = parse_cpu_list(gpu.cpus)
    for node in nodes:
        if node.node == gpu.numa_node:
            return node.node
        if gpu.numa_node is None and near and near <= parse_cpu_list(node.cpus):
            return node.node
    return None


def _overlaps(facts: CheckFacts, node: NumaNode) -> bool:
    allowed = parse_cpu_list(facts.inventory.limits.cpus)
    return not allowed or bool(allowed & parse_cpu_list(node.cpus))


def _is_bound(facts: CheckFacts) -> bool:
    """Return whether the last command bound its processes itself."""
    words = facts.run.measurement.command if facts.run is not None else ()
    wanted = ("numactl", "--numa-binding", "--numa_binding", "--enable_cpu_affinity")
    return any(word.startswith(wanted) or word.endswith("/numactl") for word in words)


def _far_from_gpu(facts: CheckFacts) -> Judgement:
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    gpus = [gpu for gpu in asked if gpu.cpus]
    if not gpus:
        return not_applicable("one_numa_node")
    allowed = parse_cpu_list(facts.inventory.limits.cpus)
    if not allowed:
        return not_checked("affinity_not_told")
    far = [gpu for gpu in gpus if not allowed & parse_cpu_list(gpu.cpus)]
    if len(far) < len(gpus):  # one GPU is near, and a rank's GPU is not known here
        return clean({"cpus": facts.inventory.limits.cpus or ""})
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen={
            "cpus": facts.inventory.limits.cpus or "",
            "gpu": plural(len(gpus), "GPU"),
            "near": gpus[0].cpus or "",
        },
        cost=_BIND,
        commands=_move_near(facts, gpus),
        advice=() if _move_near(facts, gpus) else (_ask_for_near_cores(facts),),
    )


def _move_near(facts: CheckFacts, gpus: Sequence[Gpu]) -> tuple[Command, ...]:
    """Return the command that moves a training near its GPU, if nobody handed out these cores."""
    near = set.intersection(*(parse_cpu_list(gpu.cpus) for gpu in gpus))
    near &= parse_cpu_list(facts.system.cpuset)
    if not near or facts.site.scheduler is not None:
        return ()
    line = f"taskset --cpu-list {format_cpu_list(near)} python train.py"
    return (by_user(line, Disruption.LOAD),)


def _ask_for_near_cores(facts: CheckFacts) -> str:
    if facts.site.scheduler == "slurm" and facts.site.in_job:
        return (
            "Slurm handed out these cores: ask for some near the GPU when you hand the job in "
            "(`--gres-flags=enforce-binding`), and let srun bind to them (`--gpu-bind=closest`)."
        )
    return "Whoever handed out these cores can hand out some that are near the GPU."


def _thread_pinning(facts: CheckFacts) -> Judgement:
    """Judge a binding that puts all ranks or workers of a machine on the same few cores."""
    for name in ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"):
        value = facts.environment.get(name)
        if value is None or (name == "OMP_PROC_BIND" and not is_on(value)):
            continue
        if facts.site.in_job and name in ("OMP_PLACES", "OMP_PROC_BIND"):
            return clean({"name": name, "value": value})  # places are those of each task's cores
        ranks = facts.run.measurement.num_ranks if facts.run is not None else 1
        workers = facts.run.measurement.workers if facts.run is not None else None
        if ranks > 1 or workers is not None:
            commands, advice = unset(facts, [name])
            return fires(
                Severity.INFO,
                Certainty.POSSIBLE,
                seen={"name": name, "value": value, "num_ranks": ranks},
                commands=commands,
                advice=advice,
            )
        return clean({"name": name, "value": value})
    return not_applicable("not_set")


CHECKS = (
    CheckRow(
        code="threads_over_cores",
        subject="threads",
        title="more threads than cores",
        seen=(
            "{num_threads} threads in each of {num_ranks} process(es)",
            "{num_usable} usable cores",
        ),
        why="Threads of an operator wait for each other; those without a core hold up the "
        "rest. torch counts the cores of the machine, not those that a quota leaves.",
        source=_TUNING,
        judge=_threads_over_cores,
    ),
    CheckRow(
        code="spin_waiting",
        subject="threads",
        title="threads spin while others use the cores",
        seen=(
            "{num_threads} threads",
            "other processes kept {others_cores} of {num_cores} cores busy just now",
            "{run_others_cores} during the last run",
        ),
        why="A thread that is done spins in the hope of more work. It keeps the very thread "
        "that it waits for off its core.",
        source="https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html",
        judge=_spin_waiting,
    ),
    CheckRow(
        code="cpu_quota_below_cores",
        subject="threads",
        title="a quota allows fewer cores than are seen",
        seen=(
            "quota {quota_cores} cores, {num_cores} seen",
            "torch takes {num_threads} threads",
            "stopped in {throttled_fraction} of the quota's periods",
        ),
        why="A group that uses more is stopped for the rest of each period, all threads at "
        "once. Programs size their pools of threads by the cores that they see.",
        source="https://docs.kernel.org/scheduler/sched-bwc.html",
        judge=_quota_below_cores,
    ),
    CheckRow(
        code="affinity_across_nodes",
        subject="threads",
        title="processes may run on any NUMA node",
        seen=("cores {cpus} span {num_spanned} of {num_nodes} nodes",),
        why="Memory and GPU of the other socket are farther away. One process a node, bound to "
        "it, stays near.",
        source=_BINDING,
        judge=_affinity_across_nodes,
    ),
    CheckRow(
        code="cores_far_from_gpu",
        subject="threads",
        title="the allowed cores are not those near the GPU",
        seen=("cores {cpus}", "{gpu}, nearest to cores {near}"),
        why="Each launch and copy crosses from one socket to the other.",
        source=_BINDING,
        judge=_far_from_gpu,
    ),
    CheckRow(
        code="threads_pinned_alike",
        subject="threads",
        title="a variable pins threads, and there are several processes",
        seen=("{name}={value}", "{num_ranks} rank(s) in the last run"),
        why="Each process obeys the same list, so that all of them may share its first cores.",
        source=_TUNING,
        judge=_thread_pinning,
    ),
)
