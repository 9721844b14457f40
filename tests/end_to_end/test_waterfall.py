"""A delay that is planted in one part of a real step grows that part of the waterfall alone.

Against ceilings that are made up, which only move the bounds of arithmetic and memory.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from end_to_end.conftest import RunSpecimen, SpecimenRun
from end_to_end.harness import LIMIT_S, STEPTIME, environment, has_gpu, needs_linux, needs_torch
from steptime.core.codec import to_json
from steptime.diagnose.values.reach_values import MAX_UNEXPLAINED, Waterfall
from steptime.diagnose.waterfall.step_waterfall import make_picture
from steptime.machine.values.ceiling_values import BenchProcess, Ceiling, Ceilings
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records

pytestmark = [needs_torch, needs_linux]

RATES = (("matmul", None, "fp32", 300e9), ("copy", "memory", None, 20e9))
CEILINGS = Ceilings(
    fingerprint="0" * 16,
    measured_unix_s=1.0,
    took_s=1.0,
    budget_s=1.0,
    bench=BenchProcess(
        python="python",
        python_version="3",
        torch_version="2",
        num_threads=1,
        num_cores=1,
        wait_policy="passive",
    ),
    ceilings=tuple(
        Ceiling(
            kind=kind,
            device="cpu",
            variant=variant,
            dtype=dtype,
            unit="flops_per_s" if kind == "matmul" else "bytes_per_s",
            best_rate=rate,
        )
        for kind, variant, dtype, rate in RATES
    ),
)

MEMORY = ("bandwidth", "slow_operators")
GROUPS = {
    "arithmetic": ("arithmetic", "shape"),
    "memory": MEMORY,
    **{name: (name,) for name in ("launch", "input", "communication", "optimizer", "script")},
}
"""What a neighbor takes, and what is unexplained, depends on the machine's day."""


WAYS = (
    ("input", "input", None),
    ("script", "script", None),
    ("launch", "launch", None),
    ("bandwidth", "memory", None),
    ("optimizer", "optimizer", None),
    ("communication", "communication", 2),
)
"""A delay by its name, the group of parts that it belongs to, and on how many ranks."""


def cut(run: SpecimenRun) -> Waterfall:
    return make_picture(measure(read_records(run.folder)), CEILINGS).waterfall


def seen(waterfall: Waterfall, group: str) -> float:
    """The time of a group; beside others, by CPU time, with the waits that are named apart."""
    phases = ("input_wait" if name == "input" else name for name in GROUPS[group])
    waited_s = sum(waterfall.waits.get(phase, 0.0) for phase in phases)
    return waterfall.time_of(*GROUPS[group]) + waited_s


@pytest.mark.parametrize(("way", "grown", "nproc"), WAYS)
@pytest.mark.slow("a true process with the delay, and one without")
@pytest.mark.serial
def test_a_delay_grows_its_part_alone(
    run_specimen: RunSpecimen, way: str, grown: str, nproc: int | None
) -> None:
    before = cut(run_specimen("delayed", "none", nproc=nproc, is_forked=False))
    after = cut(run_specimen("delayed", way, nproc=nproc, is_forked=False))

    assert (before.missing, after.missing) == (None, None)
    more = {name: seen(after, name) - seen(before, name) for name in GROUPS}
    assert more[grown] >= 0.02, (more, after)
    # A busy machine makes all parts longer: the shares of the others may not grow.
    others = [name for name in GROUPS if name != grown]
    shares = {n: after.fraction_of(*GROUPS[n]) - before.fraction_of(*GROUPS[n]) for n in others}
    assert max(shares.values()) <= 0.1, (shares, before, after)
    assert after.fraction_of("unexplained") <= MAX_UNEXPLAINED, after


@pytest.mark.slow("a true process, and two more that show it")
def test_ceilings_in_the_folder_of_a_run_are_what_it_is_shown_by(
    run_specimen: RunSpecimen, tmp_path: Path
) -> None:
    run = run_specimen("delayed", "none", is_forked=False)
    assert run.data["waterfall"]["missing"] == "no_ceilings"
    ceilings = run.folder / "ceilings.json"
    ceilings.write_text(json.dumps(to_json(CEILINGS)))
    try:
        shown = [
            subprocess.run(
                [*STEPTIME, "show", "last", option, "--store", str(run.folder.parents[2])],
                env=environment(tmp_path),
                capture_output=True,
                timeout=LIMIT_S,
                check=True,
            ).stdout.decode()
            for option in ("--json", "--waterfall")
        ]
    finally:
        ceilings.unlink()

    found = json.loads(shown[0])["data"]
    step_s = found["waterfall"]["step_time_s"]
    assert sum(part["time_s"] for part in found["waterfall"]["parts"]) == pytest.approx(step_s)
    assert found["roofline"]["points"][0]["name"] == "matmul"
    assert found["roofline"]["roofs"]["bytes_per_s"] == pytest.approx(20e9)
    assert "unexplained" in shown[1]


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA device is here")
def test_operators_of_a_device_fit_into_its_phases(run_specimen: RunSpecimen) -> None:
    data = run_specimen("gpu_sync", is_forked=False).data

    names = {"forward", "forward_and_loss", "backward"} & data["phases"].keys()
    model_s = sum(data["phases"][name]["device_median_s"] or 0.0 for name in names)
    times_s = {one["name"]: one["device_time_s"] for one in data["count"]["classes"]}
    assert times_s["matmul"] > 0
    assert sum(times_s.values()) < 3 * model_s  # the counting makes the host slower
