"""Rules on the Python process: what it does while the arithmetic could run.

Each rule takes a Measurement and gives a Finding, or None where it does not apply; the rows below
have the words. docs/explanation/diagnosis.md explains both.
"""

from __future__ import annotations

import math
from dataclasses import replace

from steptime.diagnose.ailments.ailment import (
    Ailment,
    Asked,
    by_cpu_time,
    by_facts,
    by_same_load,
    loop_without,
    without,
)
from steptime.diagnose.ailments.contention import missing_beside_phases
from steptime.diagnose.ailments.own_share import own_launches, own_sync
from steptime.diagnose.ailments.scale import MIN_EXPLAINED, SCALE, Threshold, severity_of
from steptime.diagnose.ailments.signals import (
    apart_fraction,
    count,
    fraction_of,
    idle_fraction,
    is_on_device,
    make_finding,
    median_step_s,
    phase_evidence,
    phase_of,
    seconds,
    share,
    site_of,
    sum_fractions,
)
from steptime.diagnose.ailments.waste.needless_work import is_collected_by_script
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement, RankSummary

TINY_OPERATOR_COST_S = Threshold(
    name="TINY_OPERATOR_COST_S",
    value=40e-6,
    why="the most that an operator under 20 µs costs: itself, and as much again to start it "
    "forward and backward (10 to 20 µs measured in eager mode)",
)
MIN_RECOMPILES = Threshold(
    name="MIN_RECOMPILES", value=2, why="one is how torch learns that a size varies"
)
RECOMPILE_LIMIT = Threshold(
    name="RECOMPILE_LIMIT",
    value=8,
    why="the default of torch._dynamo.config.recompile_limit: beyond it a function runs eagerly",
)
PAGE_FAULT_S = Threshold(
    name="PAGE_FAULT_S",
    value=1.8e-6,
    why="measured on a virtual machine: 20,000 faults per step of a convnet took 36 ms",
)
PAGE_BYTES = Threshold(name="PAGE_BYTES", value=4096, why="the page of x86-64 and most ARM systems")

_PROBED = ("forward", "loss", "forward_and_loss", "backward")
"""Phases whose operators the guest counts on the sampled step."""

BELOW = ("torch", "numpy")
"""Libraries that a script calls itself, or others call for it: their operators are the step."""

_NOT_LAUNCHING = (
    *("input_wait", "process_wait", "rollout"),
    *("h2d", "sync", "communication", "other"),
)
"""Causes that alone explain an idle device."""


def find_tiny_operators(measurement: Measurement) -> Finding | None:
    """HOST_BOUND, on the CPU: operators are so small that their start outweighs their work."""
    operators, step_s = measurement.operators, median_step_s(measurement)
    if operators is None or operators.missing or not step_s or is_on_device(measurement):
        return None
    num_probed = max(1.0, measurement.num_optimizer_updates / max(1, measurement.num_steps))
    phases = [p for p in (phase_of(measurement, name) for name in _PROBED) if p]
    wall_s = math.fsum(p.median_s or 0.0 for p in phases)
    cpu_s = math.fsum(p.cpu_median_s or 0.0 for p in phases)
    # Several threads take more CPU time than wall time; a lost core takes wall time alone.
    busy_s = min(wall_s, cpu_s) if cpu_s > 0 else wall_s
    # What is slow only in the probed update is not a large operator either.
    rest_s = max(busy_s - operators.large_s * num_probed, operators.tiny_s * num_probed)
    rest_s = min(rest_s, busy_s)
    tiny_s = min(rest_s, operators.num_tiny * num_probed * TINY_OPERATOR_COST_S.value)
    if busy_s <= 0 or tiny_s < MIN_EXPLAINED.value * rest_s:
        return None
    # The medians of the phases may add up to more than the step's median.
    fraction = min(tiny_s / step_s, sum_fractions(measurement, _PROBED))
    severity = severity_of(fraction)
    if severity is None:
        return None
    library, taken = _slow_library(measurement)
    found = make_finding(
        TINY_OPERATORS,
        severity=severity,
        evidence=(
            share("tiny_operators", fraction),
            count("num_operators", operators.num * num_probed),
            count("num_tiny", operators.num_tiny * num_probed),
            *([share("library_python", taken)] if library else []),
        ),
        fraction=fraction,
        site=site_of(measurement, "forward"),
        missing=missing_beside_phases(measurement),
    )
    return replace(found, names={"library": library}) if library else found


def _slow_library(measurement: Measurement) -> tuple[str, float]:
    """Return the library, other than torch, whose functions take most of the steps, if one does."""
    spent = measurement.spent
    known = {} if spent is None else {k: v for k, v in spent.libraries.items() if k not in BELOW}
    name = max(known, key=lambda one: known[one], default="")
    taken = known.get(name, 0.0)
    return (name, taken) if taken >= MIN_EXPLAINED.value else ("", 0.0)


def find_launches(measurement: Measurement) -> Finding | None:
    """HOST_BOUND: the device waits for the host to launch, and nothing else explains it."""
    idle = idle_fraction(measurement)
    if idle is None or not is_on_device(measurement):
        return None
    fraction = idle - sum_fractions(measurement, _NOT_LAUNCHING)
    severity = severity_of(fraction)
    if severity is None:
        return None
    return make_finding(
        LAUNCHES,
        severity=severity,
        evidence=(share("launches", fraction), share("idle", idle)),
        fraction=fraction,
        site=site_of(measurement, "forward"),
        missing=missing_beside_phases(measurement),
    )


def find_sync(measurement: Measurement) -> Finding | None:
    """HOST_BOUND: the host waits for the device in the middle of a step."""
    waits, idle = fraction_of(measurement, "sync"), idle_fraction(measurement)
    if waits is None:
        return None
    # Waiting for the device costs nothing while it has work.
    fraction = waits if idle is None else min(waits, idle)
    severity = severity_of(fraction)
    if severity is None:
        return None
    return make_finding(
        SYNC,
        severity=Severity.INFO if idle is None else severity,
        evidence=(
            *phase_evidence(measurement, "sync"),
            count("syncs", measurement.syncs_per_step or 0),
            *(() if idle is None else (share("idle", idle),)),
        ),
        fraction=fraction,
        site=site_of(measurement, "sync"),
        missing=(
            *(("device_time",) if idle is None else ()),
            *missing_beside_phases(measurement),
        ),
    )


def find_gc(measurement: Measurement) -> Finding | None:
    """HOST_BOUND: Python collects garbage; while one rank collects, the others wait."""
    ranks = [(rank, rank.gc) for rank in measurement.ranks if rank.gc is not None]
    if not ranks:
        return None
    worst, pauses = max(ranks, key=lambda pair: pair[1].fraction)
    is_one_job = all(rank.world_size > 1 for rank, _ in ranks)
    together = math.fsum(gc.fraction for _, gc in ranks)
    fraction = min(1.0, together) if is_one_job else pauses.fraction
    severity = severity_of(fraction)
    if severity is None:
        return None
    if is_collected_by_script(measurement, fraction):
        severity = Severity.INFO  # these calls have a finding
    return make_finding(
        GC,
        severity=severity,
        evidence=(
            share("gc", fraction),
            count("gc_pauses", pauses.pauses_per_step),
            seconds("gc_time", pauses.s_per_step),
            *([count("gc_rank", worst.rank)] if len(ranks) > 1 else []),
        ),
        fraction=fraction,
        missing=missing_beside_phases(measurement),
    )


def find_recompile(measurement: Measurement) -> Finding | None:
    """HOST_BOUND: functions are compiled again and again, which is kept apart from the steps."""
    compilation = measurement.compilation
    num_again = sum(e.count for e in compilation.recompiles) if compilation else 0
    if compilation is None or num_again < MIN_RECOMPILES.value:
        return None
    part = min(1.0, num_again / max(1, compilation.num_graphs))
    fraction = apart_fraction(measurement, compilation.total_s * part)
    severity = severity_of(fraction) or Severity.INFO
    if num_again >= RECOMPILE_LIMIT.value and severity is Severity.INFO:
        severity = Severity.WARNING
    worst = max(compilation.recompiles, key=lambda event: event.count)
    found = make_finding(
        RECOMPILE,
        severity=severity,
        evidence=(
            *(() if fraction is None else (share("recompile", fraction),)),
            count("num_recompiles", num_again),
            seconds("compile_total", compilation.total_s),
        ),
        fraction=fraction,
    )
    return replace(found, where=worst.where, where_text=worst.reason)


def find_page_faults(measurement: Measurement) -> Finding | None:
    """HOST_BOUND: the operating system hands out the same memory again and again."""
    worst = max(measurement.ranks, key=_fault_fraction, default=None)
    fraction = _fault_fraction(worst) if worst else 0.0
    severity = severity_of(fraction)
    if worst is None or worst.host_memory is None or severity is None:
        return None
    return make_finding(
        GRADIENT_FAULTS if _are_of_gradients(measurement, worst) else PAGE_FAULTS,
        severity=severity,
        evidence=(
            share("page_faults", fraction),
            count("num_page_faults", round(worst.host_memory.minor_faults_per_step or 0)),
        ),
        fraction=fraction,
        missing=missing_beside_phases(measurement),
    )


def _fault_fraction(rank: RankSummary) -> float:
    """Return the share of a step inside the system, as far as page faults explain it.

    It is a share of the CPU time where several threads work at once, else of the wall time: a
    process that mostly waits loses nothing by what it does with its little CPU time. Faults that
    would take longer than the step were made beside it, by an evaluation perhaps.
    """
    memory = rank.host_memory
    times = [time.estimate for time in (rank.step_time_s, rank.step_cpu_s) if time is not None]
    step_s = max(times, default=0.0)
    if memory is None or memory.minor_faults_per_step is None or step_s <= 0:
        return 0.0
    system_s = memory.system_cpu_s_per_step or 0.0
    fraction = min(system_s, memory.minor_faults_per_step * PAGE_FAULT_S.value) / step_s
    return fraction if fraction <= 1 else 0.0


def _are_of_gradients(measurement: Measurement, rank: RankSummary) -> bool:
    """Return whether new gradients, which are given back in each step, explain most faults."""
    memory, use = measurement.memory, rank.host_memory
    held = None if memory is None else memory.part("gradients").bytes
    num = 0.0 if use is None else use.minor_faults_per_step or 0.0
    return held is not None and held >= MIN_EXPLAINED.value * num * PAGE_BYTES.value


TINY_OPERATORS = Ailment(
    kind=BottleneckKind.HOST_BOUND,
    cause="tiny_operators",
    what="many operators are so small that starting them costs more than they do",
    needs="operators of one eager step (CPU)",
    rule=find_tiny_operators,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_EXPLAINED, TINY_OPERATOR_COST_S),
    sentence="{num_tiny} of {num_operators} operators in a step take under 20 µs. Starting them "
    "costs more than they do, up to {tiny_operators} of a step.",
    explanation="Functions of {library}, with the operators that they call, take {library_python} "
    "of all steps.",
    removal=without("the cost of starting them"),
    remedy="Let torch.compile fuse them, or put their work into fewer, larger operators.",
    levers=("compile", "fused_rnn", "fused_gelu", "fused_optimizer", "num_threads", "interpreter"),
    when_contended=by_cpu_time(
        "Operators are counted, and timed in the CPU time of their thread; a step that others make "
        "longer lowers the share."
    ),
)
LAUNCHES = Ailment(
    kind=BottleneckKind.HOST_BOUND,
    cause="launches",
    what="the device waits for the host to launch",
    needs="device times",
    rule=find_launches,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="the device is idle for {idle} of a step. For {launches} of a step it waits for the "
    "host to launch the next operator.",
    removal=without("that wait"),
    remedy="Let torch.compile fuse operators, or record them as CUDA graphs (mode "
    "reduce-overhead).",
    levers=("compile", "fused_optimizer"),
    when_contended=by_cpu_time(
        "A host that lost its core leaves a device idle, too; so the CPU time of the host must "
        "itself be longer than the time of the device.",
        own_launches,
    ),
)
SYNC = Ailment(
    kind=BottleneckKind.HOST_BOUND,
    cause="sync",
    what="the host waits for the device in the middle of a step (`.item()`, `print`)",
    needs="`sync`, device times",
    rule=find_sync,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="the host waits for the device in the middle of a step, for {sync} of its time.",
    removal=without("that wait"),
    remedy="Read values from the device less often (every tenth step, say).",
    when_contended=by_cpu_time(
        "What others may have taken of the waits is taken away; a wait that spins uses a core, and "
        "keeps its share.",
        own_sync,
    ),
)
GC = Ailment(
    kind=BottleneckKind.HOST_BOUND,
    cause="gc",
    what="Python's garbage collection takes much of a step",
    needs="pauses of each rank",
    rule=find_gc,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="Python's garbage collection takes {gc} of a step: {gc_pauses} per step, which take "
    "{gc_time}.",
    explanation="Python searches all objects for cycles, whatever the phase.",
    suspicion="These are of rank {gc_rank}, which has most.",
    removal=without("the collections"),
    remedy="Freeze what lives long (gc.freeze() before the loop).",
    levers=("gc_control",),
    when_contended=by_same_load(
        "A collection is CPU time of the thread that also runs the step: both take longer alike."
    ),
)
RECOMPILE = Ailment(
    kind=BottleneckKind.HOST_BOUND,
    cause="recompile",
    what="functions are compiled again and again",
    needs="events of torch.compile",
    rule=find_recompile,
    asked=Asked.ALWAYS,
    thresholds=(*SCALE, MIN_RECOMPILES, RECOMPILE_LIMIT),
    sentence="functions were compiled again {num_recompiles} times. All compiling together took "
    "{compile_total}.",
    explanation="Sizes that vary, or values read from Python, make a graph invalid.",
    removal=loop_without("the repeated compiling"),
    remedy="Mark what varies as dynamic (torch.compile(dynamic=True)), or pad to a few sizes.",
    levers=("dynamic_shapes", "no_compile"),
    when_contended=by_facts(
        "Compilations are counted; compiling and the steps both take longer beside a neighbor."
    ),
)
PAGE_FAULTS = Ailment(
    kind=BottleneckKind.HOST_BOUND,
    cause="page_faults",
    what="memory is given back and fetched again in each step",
    needs="page faults, system CPU time",
    rule=find_page_faults,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, PAGE_FAULT_S),
    sentence="the operating system hands out memory again: {num_page_faults} page faults per step "
    "take {page_faults} of a step.",
    explanation="The allocator gives memory back and asks for it again.",
    removal=without("the page faults"),
    remedy="Try another allocator (jemalloc, tcmalloc), or send each batch through the model in "
    "parts.",
    levers=("allocator", "micro_batches"),
    when_contended=by_facts(
        "Page faults are counted, at a fixed time each; a step that others make longer lowers the "
        "share."
    ),
)
GRADIENT_FAULTS = replace(
    PAGE_FAULTS,
    cause="gradient_faults",
    what="the memory of the gradients is given back and fetched again in each step",
    needs="page faults, system CPU time, memory of the gradients",
    thresholds=(*SCALE, PAGE_FAULT_S, PAGE_BYTES, MIN_EXPLAINED),
    explanation="Most of it is the gradients, which are freed and made again.",
    remedy="Keep their memory (zero_grad(set_to_none=False)), or, where they are of a large "
    "embedding, make them sparse (sparse=True, with SparseAdam).",
    levers=(),
)
AILMENTS = (TINY_OPERATORS, LAUNCHES, SYNC, GC, RECOMPILE, PAGE_FAULTS, GRADIENT_FAULTS)
