"""Measurements that look real, for the tests of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.measure.values.desync import CollectiveCall, Desync
from steptime.measure.values.machine_load import HostLoad, WorkerSummary
from steptime.measure.values.measurement import (
    INNER_PHASES,
    PHASES,
    SPANS,
    Measurement,
    Overhead,
    Phase,
    RankSummary,
    Span,
    SteadyWindow,
)
from steptime.measure.values.model.anatomy import (
    PARTS,
    Anatomy,
    Death,
    Instant,
    Kept,
    LoaderMemory,
    MemoryPart,
    MemoryTimeline,
)
from steptime.measure.values.model.profiled import (
    ClassTime,
    DeviceProfile,
    Gap,
    HostProfile,
    OperatorTime,
    Profile,
    ProfileWish,
    RankProfile,
    ThreadTime,
)
from steptime.measure.values.model.work import ClassCount, Count, ModuleCount
from steptime.measure.values.observations import ScriptError
from steptime.measure.values.stall import StackFrame, Stall, StalledRank, ThreadStack
from steptime.measure.values.wall_time import WallPart, WallTime

RUN_ID = "20261120-101500-3fa2"


def make_quantity(median: float, *, spread: float = 0.01, n: int = 470) -> Interval:
    low, high = round(median * (1 - spread), 7), round(median * (1 + spread), 7)
    return Interval(estimate=median, low=low, high=high, n=n)


def make_phases(medians_s: Mapping[str, float], **missing: str) -> tuple[Phase, ...]:
    """Phases with these medians; fractions follow, the CPU time is the wall time."""
    total_s = sum(s for name, s in medians_s.items() if name not in INNER_PHASES)
    seen = [
        Phase(
            name=name,
            median_s=s,
            fraction=round(s / total_s, 6),
            cpu_median_s=s,
            mean_s=s,
            cpu_mean_s=s,
        )
        for name, s in medians_s.items()
    ]
    return (*seen, *(Phase(name=name, missing=word) for name, word in missing.items()))


def make_rank(phases: tuple[Phase, ...], *, rank: int = 0, **changes: Any) -> RankSummary:
    base = RankSummary(
        rank=rank,
        pid=4100 + rank,
        world_size=1,
        python_version="3.11.7",
        torch_version="2.13.0",
        device="cpu",
        num_threads=2,
        num_steps=500,
        num_optimizer_updates=500,
        num_backwards=500,
        step_time_s=make_quantity(sum_of_step_s(phases)),
        step_cpu_s=make_quantity(round(sum_of_step_s(phases) * 1.9, 6)),
        phases=phases,
        ended_cleanly=True,
    )
    return replace(base, **changes)


def sum_of_step_s(phases: tuple[Phase, ...]) -> float:
    return round(sum(p.median_s or 0.0 for p in phases if p.name not in INNER_PHASES), 6)


def make_steady(step_time_s: float, *, num_steps: int = 470, warmup: int = 30) -> SteadyWindow:
    return SteadyWindow(
        first_step=warmup,
        num_steps=num_steps,
        num_warmup_steps=warmup,
        rule="settled",
        step_time_s=make_quantity(step_time_s, n=num_steps),
        step_cpu_s=make_quantity(round(step_time_s * 1.9, 6), n=num_steps),
    )


def make_measurement(phases: tuple[Phase, ...], **changes: Any) -> Measurement:
    base = Measurement(
        schema=SCHEMA,
        run_id=RUN_ID,
        command=("python", "train.py", "--lr", "3e-4"),
        started_unix_s=1_795_169_700.0,
        duration_s=64.2,
        end=ProcessEnd(state=RunState.FINISHED, exit_code=0),
        num_steps=500,
        num_optimizer_updates=500,
        num_backwards=500,
        num_skipped_updates=0,
        num_ranks=1,
        period=None,
        steady=make_steady(sum_of_step_s(phases)) if phases else None,
        phases=phases,
        spans=(),
        copies_per_step=None,
        syncs_per_step=1.0,
        ranks=(make_rank(phases),) if phases else (),
        workers=None,
        host=HostLoad(num_cores=2, job_cores=1.91, others_cores=0.04, num_samples=58),
        overhead=Overhead(cpu_s_per_step=41e-6, fraction=0.00018),
        notes=(),
    )
    return replace(base, **changes)


NO_DEVICE = {"h2d": "not_applicable_on_cpu", "sync": "not_applicable_on_cpu"}
ALONE = {"communication": "single_rank", "forward_and_loss": "not_compiled_together"}

GPT_PHASES = make_phases(
    {
        "input_wait": 0.0013,
        "fetch": 0.0009,
        "collate": 0.0004,
        "forward": 0.0412,
        "loss": 0.0031,
        "backward": 0.0668,
        "gradient_processing": 0.0009,
        "optimizer": 0.0042,
        "other": 0.0006,
    },
    **NO_DEVICE,
    **ALONE,
)
GPT_SPANS = (
    Span(name="evaluation", total_s=4.13, num_steps_touched=5),
    Span(name="checkpoint", total_s=0.31, num_steps_touched=1),
    Span(name="epoch_start", total_s=0.05, num_steps_touched=1),
)


GPT_WALL = WallTime(
    total_s=64.2,
    parts=(
        WallPart(name="interpreter", total_s=0.1),
        WallPart(name="imports", total_s=2.6),
        WallPart(name="setup", total_s=0.6),
        WallPart(name="first_batch", total_s=0.02),
        WallPart(name="warmup", total_s=0.4),
        WallPart(name="steps", total_s=55.8, num=500),
        WallPart(name="epoch_start", total_s=0.05, num=1),
        WallPart(name="evaluation", total_s=4.13, num=5, where="train.py:61"),
        WallPart(name="checkpoint", total_s=0.31, num=1, where="train.py:70"),
        WallPart(name="after_steps", total_s=0.1),
        WallPart(name="exit", total_s=0.09),
    ),
)

GPT_COUNT = Count(
    forward=12_884_901_888,
    backward=25_769_803_776,
    recomputed=0,
    macs=19_327_352_832,
    classes=(
        ClassCount(
            name="matmul", num=75, flops=35_433_480_192, moved_bytes=61_000_000, time_s=0.09
        ),
        ClassCount(
            name="attention", num=8, flops=3_221_225_472, moved_bytes=9_000_000, time_s=0.01
        ),
    ),
    modules=(ModuleCount(name="GPT", kind="GPT", forward=12_884_901_888, backward=25_769_803_776),),
    by_dtype={"fp32": 38_654_705_664},
    covered_fraction=0.998,
    uncovered=("aten.linalg_inv_ex.default",),
    masked_flops=1_610_612_736,
    again_flops=536_870_912,
)


def healthy() -> Measurement:
    return make_measurement(GPT_PHASES, spans=GPT_SPANS, wall_time=GPT_WALL)


def counted() -> Measurement:
    """On a device that has a datasheet peak."""
    rank = make_rank(GPT_PHASES, device="cuda", device_name="NVIDIA H100 80GB HBM3")
    return make_measurement(GPT_PHASES, ranks=(rank,), count=GPT_COUNT)


def input_bound() -> Measurement:
    phases = make_phases(
        {
            "input_wait": 0.0733,
            "forward": 0.0118,
            "loss": 0.0012,
            "backward": 0.0243,
            "gradient_processing": 0.0,
            "optimizer": 0.0049,
            "other": 0.0031,
        },
        fetch="loads_in_workers",
        collate="loads_in_workers",
        **NO_DEVICE,
        **ALONE,
    )
    workers = WorkerSummary(
        num_workers=2,
        num_batches=500,
        fetch_s_per_batch=0.221,
        collate_s_per_batch=0.004,
        cpu_s_per_batch=0.218,
    )
    run = make_measurement(phases, workers=workers)
    assert run.host is not None
    return replace(run, host=replace(run.host, num_cores=4))


def straggler() -> Measurement:
    common = {"input_wait": 0.0021, "optimizer": 0.0049, "other": 0.0008}
    quick = {"forward": 0.0391, "backward": 0.0652, "communication": 0.0713}
    late = {"forward": 0.0672, "backward": 0.1021, "communication": 0.0063}
    phases = [
        make_phases({**common, **own}, loss="inside_forward", **NO_DEVICE) for own in (quick, late)
    ]
    ranks = tuple(make_rank(p, rank=i, world_size=2) for i, p in enumerate(phases))
    command = ("torchrun", "--nproc-per-node", "2", "train.py")
    both = {name: (quick[name] + late[name]) / 2 for name in quick}
    of_run = make_phases({**common, **both}, loss="inside_forward", **NO_DEVICE)
    return make_measurement(of_run, num_ranks=2, ranks=ranks, command=command)


def killed() -> Measurement:
    return make_measurement(
        GPT_PHASES,
        end=ProcessEnd(state=RunState.KILLED, signal=9),
        duration_s=26.9,
        num_steps=212,
        num_optimizer_updates=212,
        num_backwards=848,
        num_skipped_updates=2,
        steady=make_steady(0.1181, num_steps=182),
        ranks=(make_rank(GPT_PHASES, num_steps=212, ended_cleanly=False),),
        notes=(Note(code="ended_abruptly", facts={"ranks": "0"}),),
    )


def no_steps() -> Measurement:
    return make_measurement(
        (),
        command=("python", "evaluate.py"),
        duration_s=3.12,
        num_steps=0,
        num_optimizer_updates=0,
        num_backwards=0,
        num_ranks=0,
        syncs_per_step=None,
        host=None,
        overhead=None,
        notes=(Note(code="no_torch_seen"),),
    )


def contended() -> Measurement:
    host = HostLoad(num_cores=2, job_cores=0.91, others_cores=1.04, num_samples=131)
    return make_measurement(GPT_PHASES, spans=GPT_SPANS, host=host, duration_s=141.0)


def stalled() -> Measurement:
    """Rank 1 of two waits for a lock, rank 0 for rank 1, until somebody interrupts it."""
    base = straggler()
    stack = ThreadStack(
        pid=4101,
        thread="MainThread",
        frames=(
            StackFrame(function="get", file="/usr/lib/python3.11/queue.py", line=171),
            StackFrame(function="next_batch", file="/home/me/project/data.py", line=58),
            StackFrame(function="main", file="/home/me/project/train.py", line=31),
        ),
        is_main=True,
        is_active=False,
    )
    refused = ThreadStack(
        pid=4100, thread="MainThread", is_main=True, missing="py-spy gave no answer within 10 s"
    )
    ranks = (
        StalledRank(rank=0, pid=4100, num_steps=500, waits_in="collective", stacks=(refused,)),
        StalledRank(
            rank=1, pid=4101, num_steps=500, waits_in="lock", where="data.py:58", stacks=(stack,)
        ),
    )
    stall = Stall(
        began_unix_s=1_790_000_060.0,
        seen_unix_s=1_790_000_073.5,
        usual_step_s=0.118,
        limit_s=10.0,
        ranks=ranks,
        culprits=(1,),
    )
    end = ProcessEnd(state=RunState.KILLED, signal=2)
    return replace(base, stalls=(stall,), end=end)


def desynced() -> Measurement:
    """Rank 1 of two calls a broadcast where rank 0 calls an all_reduce; both hang."""
    base = stalled()
    expected = CollectiveCall(
        operation="all_reduce", number=301, elements=77, dtype="float32", where="train.py:10"
    )
    called = replace(expected, operation="broadcast", elements=50, where="train.py:11")
    desync = Desync(
        what="operation",
        culprits=(1,),
        others=(0,),
        called=called,
        expected=expected,
        where="train.py:11",
    )
    (stall,) = base.stalls
    ranks = tuple(
        replace(rank, waits_in="collective", where=where, stacks=())
        for rank, where in zip(stall.ranks, ("train.py:10", "train.py:11"), strict=True)
    )
    return replace(base, stalls=(replace(stall, ranks=ranks, desync=desync),))


def make_part(
    name: str, size: int | None, *, dtype: str = "fp32", missing: str | None = None
) -> MemoryPart:
    if size is None:
        return MemoryPart(name=name, missing=missing)
    return MemoryPart(
        name=name,
        bytes=size,
        by_dtype={dtype: size},
        by_device={"cpu": size},
        num_tensors=148,
    )


def make_anatomy(**changes: Any) -> Anatomy:
    """A GPT of 124 million parameters that AdamW trains in fp32 on a CPU."""
    mib = 1 << 20
    sizes = {
        "weights": 475 * mib,
        "buffers": 0,
        "gradients": 475 * mib,
        "optimizer": 950 * mib,
        "activations": 3072 * mib,
        "logits": 588 * mib,
        "inputs": 1 * mib,
        "temporaries": 612 * mib,
    }
    reasons = {
        "communication": "no_ddp_seen",
        "context": "not_applicable_on_cpu",
        "fragmentation": "not_applicable_on_cpu",
    }
    held = {"weights": 475 * mib, "optimizer": 950 * mib, "activations": 3072 * mib}
    start = Instant(at_fraction=0.0, phase="forward", by_part={"weights": 475 * mib})
    peak = Instant(
        at_fraction=0.5,
        phase="backward",
        by_part={**held, "logits": 588 * mib, "temporaries": 612 * mib},
    )
    base = Anatomy(
        rank=0,
        moment="update",
        num_updates=13,
        num_parameters=124_439_808,
        num_trainable=124_439_808,
        parts=tuple(make_part(name, sizes.get(name), missing=reasons.get(name)) for name in PARTS),
        optimizers=("AdamW",),
        by_kind=(Kept(name="AddmmBackward0", bytes=1800 * mib),),
        by_module=(Kept(name="GPT.transformer.h.0", bytes=256 * mib, kind="Block"),),
        timeline=MemoryTimeline(
            instants=(start, peak),
            peak=peak,
            module="GPT.lm_head",
            operator="aten.mm.default",
            num_storages=4210,
        ),
        loader=LoaderMemory(batch_bytes=98_304, num_workers=2, num_waiting=4),
        worker_bytes=310 * mib,
        resident_bytes=6212 * mib,
    )
    return replace(base, **changes)


def dissected() -> Measurement:
    return make_measurement(GPT_PHASES, spans=GPT_SPANS, memory=make_anatomy())


def out_of_memory() -> Measurement:
    """A first update that did not fit: no state is there yet, and no step was followed."""
    mib = 1 << 20
    known = {"weights": 475 * mib, "buffers": 0, "activations": 3072 * mib, "logits": 588 * mib}
    parts = tuple(
        make_part(name, known.get(name), missing="no_update_seen" if name not in known else None)
        for name in PARTS
    )
    memory = make_anatomy(
        moment="backward",
        num_updates=0,
        parts=parts,
        optimizers=(),
        by_module=(),
        timeline=None,
        timeline_missing="too_few_updates",
        death=Death(
            by_part={"weights": 475 * mib, "gradients": 40 * mib, "activations": 2900 * mib}
        ),
    )
    error = ScriptError(
        type="RuntimeError",
        text="DefaultCPUAllocator: can't allocate memory: you tried to allocate 616562688 bytes.",
        num_updates=0,
        is_memory=True,
        where="train.py:31",
        phase="backward",
        requested_bytes=616_562_688,
    )
    return replace(
        no_steps(),
        command=("python", "train.py"),
        end=ProcessEnd(state=RunState.FAILED, exit_code=1),
        errors=(error,),
        memory=memory,
        notes=(),
    )


def make_operator(name: str, kind: str, self_s: float, num: int, **facts: Any) -> OperatorTime:
    return OperatorTime(name=name, kind=kind, self_s=self_s, num=num, **facts)


def make_classes(window_s: float, **times_s: float) -> tuple[ClassTime, ...]:
    return tuple(
        ClassTime(name=name, time_s=time_s, fraction=time_s / window_s, num=30)
        for name, time_s in times_s.items()
    )


def profiled() -> Measurement:
    """Two ranks of a GPU training under torch's profiler, the second without a trace."""
    host = HostProfile(
        window_s=0.0474,
        python_s=0.0298,
        loader_s=0.0012,
        sync_s=0.0021,
        num_gaps=412,
        median_gap_s=9e-6,
        longest_gaps=(Gap(time_s=0.0051, after="aten::copy_", before="aten::embedding"),),
        num_operators=3120,
        classes=make_classes(0.0474, optimizer=0.0081, matmul=0.0062, other=0.0033),
        operators=(
            make_operator("aten::mm", "matmul", 0.0031, 216, shapes="[4096, 384], [384, 1536]"),
        ),
        threads=(ThreadTime(name="training", busy_s=0.0121, num_operators=1810),),
    )
    device = DeviceProfile(
        device=0,
        window_s=0.0471,
        busy_s=0.0353,
        idle_s=0.0118,
        host_wait_s=0.0094,
        kernel_wait_s=0.0024,
        unknown_wait_s=0.0,
        communication_s=0.0061,
        exposed_communication_s=0.0019,
        num_kernels=1311,
        num_streams=3,
        classes=make_classes(
            0.0471, matmul=0.0191, attention=0.0072, elementwise=0.0058, communication=0.0019
        ),
        kernels=(
            make_operator(
                "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN",
                "matmul",
                0.0142,
                216,
                launched_by="aten::mm",
            ),
            make_operator("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication", 0.0061, 3),
        ),
    )
    profile = Profile(
        wish=ProfileWish(first_step=30),
        ranks=(
            RankProfile(
                rank=0,
                file="profile/rank-0.pt.trace.json.gz",
                first_step=30,
                num_steps=3,
                start_s=8.4,
                duration_s=0.0475,
                write_s=0.21,
                host=host,
                devices=(device,),
            ),
            RankProfile(rank=1, missing="own_profiler"),
        ),
    )
    ranks = tuple(make_rank(GPT_PHASES, rank=i, world_size=2, device="cuda") for i in range(2))
    return make_measurement(GPT_PHASES, num_ranks=2, ranks=ranks, profile=profile)


CASES = {
    "profiled": profiled,
    "healthy": healthy,
    "input_bound": input_bound,
    "straggler": straggler,
    "killed": killed,
    "no_steps": no_steps,
    "contended": contended,
    "stalled": stalled,
    "desynced": desynced,
    "dissected": dissected,
    "out_of_memory": out_of_memory,
    "counted": counted,
}


def crowded() -> Measurement:
    """All that can be in a report, at once."""
    times_s = dict.fromkeys(PHASES, 0.0123) | {"input_wait": 0.06, "fetch": 0.03, "collate": 0.03}
    del times_s["forward_and_loss"]
    phases = tuple(replace(p, device_median_s=p.median_s) for p in make_phases(times_s))
    ranks = tuple(make_rank(phases, rank=i, world_size=64, device="cuda") for i in range(64))
    return make_measurement(
        phases,
        command=("torchrun", "--nproc-per-node", "8", "train.py", *("--very-long-flag",) * 20),
        end=ProcessEnd(state=RunState.FAILED, exit_code=1),
        num_optimizer_updates=1000,
        num_backwards=8000,
        num_skipped_updates=12,
        num_ranks=64,
        period=4,
        spans=tuple(Span(name=n, total_s=123.4, num_steps_touched=17) for n in SPANS),
        ranks=ranks,
        workers=WorkerSummary(
            num_workers=64, num_batches=900, fetch_s_per_batch=1.2, collate_s_per_batch=0.3
        ),
        notes=tuple(Note(code="lost_updates", facts={"count": n}) for n in range(1, 8)),
    )
