"""Runs that look real, with all that is drawn over their time, for the tests of the page."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from report_cases import GPT_SPANS, healthy, input_bound, make_rank, straggler
from steptime.app.run.describe_run import describe_run
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import Shift
from steptime.launch.values import CommandRecord
from steptime.measure.values.desync import CollectiveCall, Desync
from steptime.measure.values.measurement import INNER_PHASES, Measurement, RankSummary
from steptime.measure.values.observations import MemoryUse, ScriptError, Site
from steptime.measure.values.over_time import DevicePoint, Event, HostPoint, RunSeries, StepPoint
from steptime.measure.values.stall import StackFrame, Stall, StalledRank, ThreadStack
from steptime.report.blocks.run.run_report import PageFacts

MIB = 1 << 20
START = 1_795_169_700.0

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>document.title='owned'</script>",
    "'; alert(1); //",
    "<!-- ",
    "&lt;b&gt;",
    "\u202ecod.exe",
    "$$\\href{https://example.org}{x}$$",
    "@{tip}{safe}<b>x</b>",
    "\x1b[31m\x00\udcff",
)


def make_record(**changes: Any) -> CommandRecord:
    base = CommandRecord(
        run_id=healthy().run_id,
        argv=("python", "train.py", "--lr", "3e-4"),
        cwd="/home/me/project",
        environment_names=("HOME", "OMP_NUM_THREADS", "PATH"),
        started_unix_s=START,
        steptime_version="0.1.0",
        python_version="3.11.7",
        git_revision="3adf61e0c1d2",
        machine=MachineIdentity(
            hostname_hash="0" * 16,
            cpu="AMD EPYC 7B13",
            num_cores=2,
            memory_bytes=24 << 30,
        ),
        parent_pid=100,
    )
    return replace(base, **changes)


def make_steps(
    m: Measurement, *, num: int = 500, num_warmup: int = 30, seed: int = 1, doubled_at: int = 0
) -> tuple[StepPoint, ...]:
    """Steps of each rank with noise, a slow beginning, rare outliers; slower from one on."""
    chance = random.Random(seed)
    found = []
    for rank in m.ranks:
        medians = {p.name: p.median_s or 0.0 for p in rank.phases if p.name not in INNER_PHASES}
        now = START + 3.0
        for i in range(num):
            slow = 1 + 9 * math.exp(-i / 4)
            slow *= math.exp(chance.gauss(0, 0.03)) * (2 if doubled_at and i >= doubled_at else 1)
            is_outlier = chance.random() < 0.012
            slow *= 2.5 if is_outlier else 1
            wall_s = {k: v * slow for k, v in medians.items() if v}
            step_s = sum(wall_s.values())
            now += step_s + (4.0 if i % 100 == 99 else 0.0)
            found.append(
                StepPoint(
                    rank=rank.rank,
                    index=i,
                    end_unix_s=now,
                    step_time_s=step_s,
                    wall_s=wall_s,
                    is_warmup=i < num_warmup,
                    is_steady=i >= num_warmup,
                    is_outlier=is_outlier and i >= num_warmup,
                    is_disturbed=i in (24, 25, 26),
                )
            )
    return tuple(sorted(found, key=lambda step: step.end_unix_s))


def make_host(*, num: int = 64, num_cores: int = 2, neighbor_at: int = 0) -> tuple[HostPoint, ...]:
    chance = random.Random(2)
    return tuple(
        HostPoint(
            t_unix_s=START + i + 1,
            dt_s=1.0,
            busy_cores=min(num_cores, 1.95 + chance.gauss(0, 0.02)),
            job_cores=1.0 if neighbor_at and i >= neighbor_at else 1.88 + chance.gauss(0, 0.02),
            worker_cores=0.3,
            job_resident_bytes=600 * MIB + i * MIB,
            worker_resident_bytes=220 * MIB,
            available_bytes=(16 << 30) - i * MIB,
            cached_bytes=(3 << 30) + i * 8 * MIB,
            swap_in_bytes=0,
            disk_read_bytes=max(0, int(chance.gauss(8, 2))) * MIB,
            disk_write_bytes=120 * MIB if i % 17 == 0 else 0,
            io_wait_cores=0.02,
            received_bytes=30_000,
            sent_bytes=12_000,
            loopback_bytes=4 * MIB,
            clock_hz=2.9e9 + chance.gauss(0, 3e7),
        )
        for i in range(num)
    )


def make_devices(*, num: int = 64, num_devices: int = 1) -> tuple[DevicePoint, ...]:
    chance = random.Random(3)
    return tuple(
        DevicePoint(
            t_unix_s=START + i + 1,
            device=f"GPU-3f2a4c{d:02d}",
            busy_fraction=min(1.0, 0.93 + chance.gauss(0, 0.03)),
            sm_fraction=0.71 + chance.gauss(0, 0.03),
            memory_active_fraction=0.44 + chance.gauss(0, 0.02),
            used_bytes=(52 << 30) + d * MIB,
            power_w=610 + chance.gauss(0, 12),
            energy_j=1e6 + 610.0 * i,
            sm_clock_hz=1.2e9 if i > 40 else 1.7e9,
            temperature_c=61 + i / 4,
            throttle=("thermal",) if i > 40 else (),
        )
        for i in range(num)
        for d in range(num_devices)
    )


EVENTS = (
    *(
        Event(what="evaluation", rank=0, t_unix_s=START + 15 * i, seconds=3.9, step=100 * i)
        for i in range(1, 4)
    ),
    Event(what="checkpoint", rank=0, t_unix_s=START + 33.0, seconds=0.31, step=220),
    Event(what="epoch_start", rank=0, t_unix_s=START + 2.1, seconds=0.4, step=0),
    *(
        Event(what="gc", rank=0, t_unix_s=START + 5 + 1.3 * i, seconds=0.004, step=9 * i)
        for i in range(40)
    ),
    Event(what="compile", rank=0, t_unix_s=START + 3.0, seconds=2.1, step=0),
    Event(
        what="recompile",
        rank=0,
        t_unix_s=START + 9.0,
        seconds=1.4,
        step=31,
        text="tensor 'x' size mismatch at index 1. expected 128, actual 96",
    ),
    Event(what="graph_break", rank=0, t_unix_s=START + 3.2, count=3, step=0, text="call to print"),
)


def with_memory(m: Measurement) -> Measurement:
    """The measurement with memory of its ranks and lines of its script."""
    use = MemoryUse(
        first_bytes=590 * MIB,
        last_bytes=655 * MIB,
        peak_bytes=661 * MIB,
        num_samples=300,
        slope_bytes_per_step=Interval(estimate=140_000, low=120_000, high=160_000, n=300),
        limit_bytes=24 << 30,
    )
    ranks: tuple[RankSummary, ...] = tuple(replace(rank, host_memory=use) for rank in m.ranks)
    lines: Mapping[str, tuple[int, str, float]] = {
        "forward": (24, "logits, loss = model(x, y)", 0.0412),
        "backward": (27, "loss.backward()", 0.0668),
        "optimizer": (28, "optimizer.step()", 0.0042),
        "input_wait": (22, "x, y = get_batch('train')", 0.0013),
    }
    sites = tuple(
        Site(
            what=what,
            file="train.py",
            line=line,
            end_line=line,
            calls_per_step=1,
            s_per_step=took_s,
            text=text,
        )
        for what, (line, text, took_s) in lines.items()
    )
    return replace(m, ranks=ranks, sites=sites)


def gpt() -> PageFacts:
    """A small GPT that evaluates now and then, and whose memory grows."""
    m = with_memory(healthy())
    return _facts(m, RunSeries(host=make_host(), steps=make_steps(m), events=EVENTS))


def images() -> PageFacts:
    """A training that waits for images."""
    m = with_memory(input_bound())
    return _facts(m, RunSeries(host=make_host(), steps=make_steps(m)))


def two_ranks() -> PageFacts:
    """Two ranks of which one is late; a neighbour starts half-way, and at the end all stands."""
    m = with_memory(straggler())
    host = make_host(num=90, neighbor_at=60)
    series = RunSeries(host=host, steps=make_steps(m, num=300, doubled_at=200), events=EVENTS[:4])
    return replace(_facts(m, series), stalls=(make_stall(),), shifts=(make_shift(),))


def make_shift(**changes: Any) -> Shift:
    base = Shift(
        rank=0,
        index=200,
        t_unix_s=START + 50,
        before_s=0.15,
        after_s=0.301,
        ratio=Interval(estimate=0.301 / 0.15, low=1.96, high=2.05, n=300),
        causes=("neighbor", "phase:backward"),
    )
    return replace(base, **changes)


def make_stall(**changes: Any) -> Stall:
    frames = (
        StackFrame(function="all_reduce", file="torch/distributed/distributed_c10d.py", line=2830),
        StackFrame(function="main", file="train.py", line=61),
    )
    waiting = ThreadStack(pid=4100, thread="MainThread", frames=frames, is_main=True)
    unseen = ThreadStack(pid=4101, thread="MainThread", missing="tracing is not permitted here")
    base = Stall(
        began_unix_s=START + 80,
        seen_unix_s=START + 84,
        usual_step_s=0.15,
        limit_s=1.5,
        ranks=(
            StalledRank(
                rank=0,
                pid=4100,
                num_steps=300,
                waits_in="collective",
                where="train.py:61",
                stacks=(waiting,),
            ),
            StalledRank(rank=1, pid=4101, num_steps=299, waits_in="sleep", stacks=(unseen,)),
        ),
        culprits=(1,),
    )
    return replace(base, **changes)


def with_devices() -> PageFacts:
    """A training on two devices that get too hot."""
    m = replace(
        with_memory(healthy()),
        ranks=(make_rank(healthy().phases, device="NVIDIA H100 80GB HBM3"),),
        spans=GPT_SPANS,
    )
    devices = make_devices(num_devices=2)
    series = RunSeries(host=make_host(), devices=devices, steps=make_steps(m), events=EVENTS)
    return _facts(m, series)


def _facts(m: Measurement, series: RunSeries) -> PageFacts:
    return PageFacts(
        document=describe_run(m, diagnose(m)),
        record=make_record(argv=m.command),
        series=series,
        version="0.1.0",
    )


def hostile(text: str) -> PageFacts:
    """A run in which everything that can be named has this name."""
    facts = two_ranks()
    m, diagnosis = facts.document.measurement, facts.document.diagnosis
    sites = tuple(replace(site, file=text, text=text) for site in m.sites)
    ranks = tuple(replace(rank, device=text, torch_version=text) for rank in m.ranks)
    crash = ScriptError(type=text, text=text, num_updates=1, where=text)
    m = replace(
        m,
        run_id=text,
        command=("python", text),
        ranks=ranks,
        sites=sites,
        errors=(crash,),
        end=ProcessEnd(state=RunState.FAILED, exit_code=1),
        notes=(Note(code=text, facts={text: text}),),
    )
    assert facts.record is not None
    assert diagnosis is not None
    record = replace(
        facts.record, argv=(text,), cwd=text, environment_names=(text,), git_revision=text
    )
    findings = tuple(
        replace(f, where=text, where_text=text, cause=text) for f in diagnosis.findings
    )
    stall = make_stall()
    frames = tuple(replace(f, function=text, file=text) for f in stall.ranks[0].stacks[0].frames)
    stack = replace(stall.ranks[0].stacks[0], frames=frames, thread=text)
    stall = replace(
        stall,
        ranks=(replace(stall.ranks[0], where=text, waits_in=text, stacks=(stack,)),),
        desync=Desync(
            what=text,
            culprits=(1,),
            others=(0,),
            called=CollectiveCall(operation=text, number=3, elements=5, dtype=text, where=text),
            where=text,
        ),
    )
    return replace(
        facts,
        document=describe_run(m, replace(diagnosis, findings=findings)),
        record=record,
        stalls=(stall,),
        shifts=(make_shift(causes=(text,)),),
        version=text,
    )


PAGES = {"gpt": gpt, "images": images, "two_ranks": two_ranks, "devices": with_devices}
