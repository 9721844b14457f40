"""Checks memory of the host: page faults, huge pages, swap, and what a group has left.

In: facts. Out: judgements.
"""

from __future__ import annotations

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    OWN,
    CheckRow,
    Judgement,
    Value,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
)
from steptime.machine.checks.node.limits_raised import more_memory
from steptime.machine.checks.remedy import by_administrator, look, try_levers
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Cost, Disruption
from steptime.measure.values.measurement import RankSummary

_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")
_FAULTS = Cost(
    of="step", low=1.05, high=1.16, source=f"{OWN} (tcmalloc in place of glibc's, CPU time)"
)
_HUGE = Cost(of="step", low=0.96, high=1.0, source=f"{OWN} (torch asking for huge pages itself)")
_SWAP_BYTES = 256 << 20  # less is what the system moved there once
_SWAP_BYTES_PER_S = 1 << 20  # an occasional page is no thrashing
_WHO_SWAPPED = "grep -s VmSwap /proc/[0-9]*/status | sort -k 2 -n | tail"
_TIGHT = 0.9  # of the limit: a batch or a checkpoint takes the rest


def _default_allocator(facts: CheckFacts) -> Judgement:
    run = facts.run
    if run is None:
        return not_checked("no_run")
    preload = run.environment.get("LD_PRELOAD", "") + facts.environment.get("LD_PRELOAD", "")
    if any(name in preload for name in _ALLOCATORS):
        return clean({"preload": preload})
    finding = next((f for f in run.diagnosis.findings if f.cause == "page_faults"), None)
    ranks = run.measurement.ranks
    faults = [
        rank.host_memory.minor_faults_per_step
        for rank in ranks
        if rank.host_memory is not None and rank.host_memory.minor_faults_per_step is not None
    ]
    if not faults:
        return not_checked("faults_not_told")
    seen: dict[str, Value] = {"faults_per_step": round(max(faults))}
    if finding is None:
        return clean(seen)
    share = next((e.value for e in finding.evidence if e.name == "page_faults"), None)
    if share is not None:
        seen["fraction"] = round(share, 3)
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen=seen,
        cost=_FAULTS,
        commands=(try_levers("allocator"),),
    )


def _huge_pages_off(facts: CheckFacts) -> Judgement:
    word = facts.system.huge_pages
    if word is None:
        return not_checked("not_told")
    if word != "never":
        return clean({"huge_pages": word})
    return fires(
        Severity.INFO,
        Certainty.POSSIBLE,
        seen={"huge_pages": word},
        cost=_HUGE,
        advice=(
            "With `madvise` only programs that ask for huge pages get them. Whoever administers "
            "the machine may have turned them off for another program.",
        ),
    )


def _swap_in_use(facts: CheckFacts) -> Judgement:
    system = facts.system
    if system.swap_used_bytes is None:
        return not_checked("not_told")
    if facts.inventory.ram.swap_bytes == 0:
        return not_applicable("no_swap")
    host = facts.run.measurement.host if facts.run is not None else None
    of_run = (host.swap_in_bytes_per_s or 0.0) if host is not None else 0.0
    rate = max(system.swap_in_bytes_per_s or 0.0, of_run)
    seen: dict[str, Value] = {"used_bytes": system.swap_used_bytes, "in_bytes_per_s": round(rate)}
    if rate >= _SWAP_BYTES_PER_S:
        return fires(
            Severity.WARNING,
            Certainty.CERTAIN,
            seen=seen,
            commands=(look("ps -eo rss,pid,user,args --sort=-rss | head"),),
        )
    total = facts.inventory.ram.total_bytes or 0
    if system.swap_used_bytes < max(_SWAP_BYTES, total // 20):
        return clean(seen)
    return fires(
        Severity.INFO,
        Certainty.POSSIBLE,
        seen=seen,
        commands=(look(_WHO_SWAPPED),),
    )


def _group_memory_tight(facts: CheckFacts) -> Judgement:
    limit = facts.inventory.limits.memory_bytes
    if limit is None:
        return not_applicable("no_limit")
    ram = facts.inventory.ram.total_bytes
    seen: dict[str, Value] = {"limit_bytes": limit}
    used = facts.system.group_used_bytes
    peaks = [rank.host_memory.peak_bytes for rank in _ranks(facts) if rank.host_memory is not None]
    if used is not None:
        seen["used_bytes"] = used
    if sum(peaks) > _TIGHT * limit or (used is not None and used > _TIGHT * limit):
        if peaks:
            seen["peak_bytes"] = sum(peaks)
        return fires(
            Severity.WARNING,
            Certainty.CERTAIN,
            seen=seen,
            cost=FAILURE,
            advice=(more_memory(facts, 2 * limit),),
        )
    on_gpus = sum(gpu.memory_bytes or 0 for gpu in driven_gpus(facts))
    if on_gpus and limit < on_gpus and (ram is None or ram > limit):
        return fires(
            Severity.INFO,
            Certainty.POSSIBLE,
            seen={**seen, "gpu_bytes": on_gpus},
            advice=(more_memory(facts, on_gpus),),
        )
    return clean(seen)


def _ranks(facts: CheckFacts) -> tuple[RankSummary, ...]:
    return facts.run.measurement.ranks if facts.run is not None else ()


def _numa_balancing(facts: CheckFacts) -> Judgement:
    if not any(gpu.vendor == "amd" for gpu in facts.inventory.gpus):
        return not_applicable("no_amd_gpu")
    if len(facts.inventory.numa) < 2:
        return not_applicable("one_numa_node")
    if facts.system.numa_balancing is None:
        return not_checked("not_told")
    if not facts.system.numa_balancing:
        return clean()
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen={"num_nodes": len(facts.inventory.numa)},
        commands=(by_administrator("sudo sysctl kernel.numa_balancing=0", Disruption.MACHINE),),
    )


CHECKS = (
    CheckRow(
        code="default_allocator",
        subject="memory",
        title="the allocator gives memory back at each step, and fetches it again",
        seen=("{faults_per_step} page faults per step", "{fraction} of the step in the kernel"),
        why="glibc returns large blocks to the system when they are freed; an allocator that "
        "keeps them has no page faults in the next step. An untuned one can be slower: "
        "`tune` tries.",
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        judge=_default_allocator,
    ),
    CheckRow(
        code="huge_pages_off",
        subject="memory",
        title="transparent huge pages are off",
        seen=("the kernel's setting is `{huge_pages}`",),
        why="Large arrays then take 512 times as many entries of the translation cache, and "
        "programs that ask for huge pages get none.",
        source="https://docs.kernel.org/admin-guide/mm/transhuge.html",
        judge=_huge_pages_off,
    ),
    CheckRow(
        code="swap_in_use",
        subject="memory",
        title="memory comes back from swap",
        seen=("{used_bytes} in swap", "{in_bytes_per_s} come back"),
        why="A page that was put aside is read from disk while the training waits for it.",
        source="https://docs.kernel.org/admin-guide/sysctl/vm.html",
        judge=_swap_in_use,
    ),
    CheckRow(
        code="group_memory_tight",
        subject="memory",
        title="the container's memory is tight",
        seen=(
            "limit {limit_bytes}",
            "{used_bytes} in use now",
            "{peak_bytes} at the peak of the last run",
            "{gpu_bytes} on the GPUs",
        ),
        why="Above the limit the kernel kills a process of the group, most often a DataLoader "
        "worker. A rule of thumb wants as much host memory as the GPUs have.",
        source="https://github.com/stas00/ml-engineering (host memory at least that of the GPUs)",
        judge=_group_memory_tight,
    ),
    CheckRow(
        code="numa_balancing_on",
        subject="memory",
        title="the kernel moves memory between nodes by itself",
        seen=("{num_nodes} NUMA nodes", "kernel.numa_balancing is on"),
        why="AMD's guide for its accelerators switches it off: the moving takes time from the run.",
        source="https://rocm.docs.amd.com/en/latest/how-to/system-optimization/mi300x.html",
        judge=_numa_balancing,
    ),
)
