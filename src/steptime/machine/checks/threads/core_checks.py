"""Checks what the kernel and a hypervisor leave of the cores: clock, stolen time, processes.

In: facts. Out: judgements.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    CheckRow,
    Judgement,
    Value,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
    own_gpus,
)
from steptime.machine.checks.remedy import by_administrator, in_shell, look
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Command, Cost, Disruption
from steptime.machine.values.node_facts import CpuClock

_GOVERNORS = "https://docs.kernel.org/admin-guide/pm/cpufreq.html"
_STEAL = "https://man7.org/linux/man-pages/man5/proc_stat.5.html (steal)"
_PIDS = "https://docs.kernel.org/admin-guide/cgroup-v2.html#pid"

_CHOOSES_ITSELF = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Drivers whose `powersave` follows the load (kernel's documentation of intel_pstate, active
mode): there the energy preference says more."""

_SAVING = ("power", "balance_power")
_SLOW = "powersave"  # elsewhere: the lowest clock, always
_FULL = 0.98  # of the best clock: the rest is rounding

_STOLEN = 0.05
"""Of the wanted time: below it, it is no more than the spread of steps on a quiet machine."""

_USUAL_LIMIT = 4096
"""What Kubernetes' guides set for a pod, and twice the default of Podman."""

_OWN_THREADS = 32
"""Of a rank beside its operators': autograd, CUDA, NCCL, pinning of memory, as seen in runs."""


# -- the clock


def _clock_low(facts: CheckFacts) -> Judgement:
    clock = facts.node.cpu_clock
    if clock is None:
        return not_checked("clock_not_told")
    seen = _clock_seen(clock)
    limited = clock.limit_hz is not None and clock.best_hz is not None
    ratio = (clock.best_hz or 1.0) / (clock.limit_hz or 1.0) if limited else 1.0
    is_limited = ratio > 1 / _FULL
    judged = _judge_governor(clock)
    if is_limited:
        judged = Severity.WARNING, Certainty.LIKELY
    if judged is None:
        return clean(seen)
    return fires(
        *judged,
        seen=seen,
        cost=Cost(of="host", low=1.0, high=round(ratio, 1), source="ratio of the clocks here")
        if is_limited
        else None,
        commands=(
            look("grep . /sys/devices/system/cpu/cpu0/cpufreq/scaling_*"),
            *_set_governor(facts, is_wrong=judged[0] is Severity.WARNING and not is_limited),
        ),
        advice=_clock_advice(facts),
    )


def _judge_governor(clock: CpuClock) -> tuple[Severity, Certainty] | None:
    if clock.driver in _CHOOSES_ITSELF:
        saves = any(word in _SAVING for word in clock.preferences)
        return (Severity.INFO, Certainty.POSSIBLE) if saves else None
    if _SLOW in clock.governors:
        return Severity.WARNING, Certainty.CERTAIN
    follows = any(word != "performance" for word in clock.governors)
    return (Severity.INFO, Certainty.POSSIBLE) if follows else None


def _set_governor(facts: CheckFacts, *, is_wrong: bool) -> tuple[Command, ...]:
    """Return the command where it is certain to be right.

    A limit is another setting, a governor that follows the load may be meant, a guest has a host,
    and a site may save power on purpose.
    """
    if not is_wrong or facts.inventory.cpu.is_virtual or facts.site.is_shared:
        return ()
    if facts.inventory.limits.container is not None:
        return ()
    line = "sudo cpupower frequency-set -g performance"
    return (by_administrator(line, Disruption.MACHINE),)


def _clock_advice(facts: CheckFacts) -> tuple[str, ...]:
    if facts.site.scheduler == "slurm":
        return ("A job may ask for it where the site allows: srun --cpu-freq=Performance.",)
    if facts.inventory.cpu.is_virtual:
        return ("In a virtual machine the host decides; another kind of machine may help.",)
    return (
        "Unless it saves power on purpose, the administrator sets the governor `performance`; "
        "it lasts until the next start, and a profile of tuned keeps it.",
    )


def _clock_seen(clock: CpuClock) -> dict[str, Value]:
    seen: dict[str, Value] = {"governors": _counts(clock.governors)}
    if clock.driver is not None:
        seen["driver"] = clock.driver
    if clock.preferences:
        seen["preferences"] = _counts(clock.preferences)
    if clock.limit_hz is not None and clock.best_hz is not None:
        seen["limit_mhz"] = round(clock.limit_hz / 1e6)
        seen["best_mhz"] = round(clock.best_hz / 1e6)
    return seen


def _counts(words: Mapping[str, int]) -> str:
    return ", ".join(f"{word} on {num} core(s)" for word, num in words.items())


# -- stolen time


def _time_stolen(facts: CheckFacts) -> Judgement:
    if facts.inventory.cpu.is_virtual is False:
        return not_applicable("not_virtual")
    steal = facts.node.steal
    if steal is None or (steal.now_fraction is None and steal.boot_fraction is None):
        return not_checked("load_not_told")
    seen: dict[str, Value] = {}
    for name, value in (
        ("now_fraction", steal.now_fraction),
        ("boot_fraction", steal.boot_fraction),
    ):
        if value is not None:
            seen[name] = round(value, 3)
    is_now = (steal.now_fraction or 0.0) >= _STOLEN
    was = (steal.boot_fraction or 0.0) >= _STOLEN
    if not is_now and not was:
        return clean(seen)
    worst = max(steal.now_fraction or 0.0, steal.boot_fraction or 0.0)
    return fires(
        Severity.WARNING if is_now else Severity.INFO,
        Certainty.CERTAIN if is_now else Certainty.POSSIBLE,
        seen=seen,
        cost=Cost(
            of="host",
            low=1.0,
            high=round(1.0 / max(1.0 - worst, 0.01), 1),
            source="share of the stolen time here",
        ),
        commands=(look("vmstat 1 5"),),
        advice=(
            "The host has sold more cores than it has, or the machine spent its credit: a kind of "
            "machine with cores of its own has none stolen.",
        ),
    )


# -- processes


def _processes_few(facts: CheckFacts) -> Judgement:
    room = facts.node.room
    if room is None:
        return not_checked("not_told")
    left = [
        (limit - (used or 0), limit, used, name)
        for limit, used, name in (
            (room.group_limit, room.group_used, "control group"),
            (room.user_limit, room.user_used, "user"),
        )
        if limit is not None
    ]
    if not left:
        return clean()
    free, limit, used, name = min(left, key=lambda row: row[0])
    ranks, workers, threads = _wanted(facts)
    least = ranks * (threads + workers + _OWN_THREADS)
    most = ranks * ((1 + workers) * threads + _OWN_THREADS)
    seen: dict[str, Value] = {
        "limit": f"{limit:,}",
        "whose": name,
        "num_ranks": ranks,
        "num_workers": workers,
        "num_threads": threads,
        "num_wanted": f"{least:,}",
    }
    if used is not None:
        seen["used"] = f"{used:,}"
    if free >= most:
        return clean(seen)
    is_short = free < least
    return fires(
        Severity.WARNING if is_short else Severity.INFO,
        Certainty.LIKELY if is_short else Certainty.POSSIBLE,
        seen=seen,
        cost=FAILURE,
        commands=_more_processes(facts, name, most),
        advice=(
            "Fewer workers, or fewer threads in each of them, need less; the limit of a group is "
            "raised by whoever set it.",
        ),
    )


def _wanted(facts: CheckFacts) -> tuple[int, int, int]:
    """Return ranks here, workers of each, and threads of each: of the last run, else of torch."""
    run = facts.run.measurement if facts.run is not None else None
    software = facts.software
    threads = (software.num_threads if software is not None else None) or 1
    if run is None:
        return max(1, len(own_gpus(facts))), 0, threads
    if run.ranks and run.ranks[0].num_threads is not None:
        threads = run.ranks[0].num_threads
    ranks = max(1, run.num_ranks)
    if driven_gpus(facts):
        ranks = min(ranks, max(1, len(own_gpus(facts))))  # the others are on other machines
    workers = 0 if run.workers is None else -(-run.workers.num_workers // max(1, run.num_ranks))
    return ranks, workers, threads


def _more_processes(facts: CheckFacts, name: str, most: int) -> tuple[Command, ...]:
    container = facts.inventory.limits.container
    if name == "user":
        return (in_shell("ulimit -u $(ulimit -H -u)"),)
    if container == "docker":
        limit = _USUAL_LIMIT
        while limit < 2 * most:
            limit *= 2
        line = f"sudo docker update --pids-limit {limit} CONTAINER"
        return (by_administrator(line, Disruption.MACHINE),)
    if container is None and facts.site.scheduler is None:
        return (look("systemctl show user-$(id -u).slice --property=TasksMax"),)
    return (look("cat /proc/self/cgroup"),)


CLOCK_CHECKS = (
    CheckRow(
        code="cores_clocked_low",
        subject="threads",
        title="the cores are kept below their clock",
        seen=(
            "governor {governors}",
            "energy preference {preferences}",
            "driver {driver}",
            "at most {limit_mhz} of {best_mhz} MHz",
        ),
        why="Launching kernels, decoding and the optimizer's loop are work of one core, as fast as "
        "its clock. With intel_pstate `powersave` follows the load; elsewhere it means the lowest "
        "clock.",
        source=_GOVERNORS,
        judge=_clock_low,
    ),
    CheckRow(
        code="time_stolen",
        subject="threads",
        title="the hypervisor takes time from the cores",
        seen=("{now_fraction} of the wanted time just now", "{boot_fraction} since the start"),
        why="A virtual core waits while another machine has the real one. Each stolen moment holds "
        "up all threads and ranks that wait for it.",
        source=_STEAL,
        judge=_time_stolen,
    ),
)

PROCESS_CHECKS = (
    CheckRow(
        code="processes_few",
        subject="limits",
        title="few processes and threads may be started",
        seen=(
            "limit {limit} of the {whose}",
            "{used} in use",
            "{num_ranks} rank(s) with {num_workers} worker(s) and {num_threads} thread(s) each "
            "want {num_wanted} at least",
        ),
        why="Each thread counts. A training that meets the limit ends with `Resource temporarily "
        "unavailable`, or a worker dies.",
        source=_PIDS,
        judge=_processes_few,
    ),
)
