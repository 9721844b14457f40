"""Checks for faster arithmetic that is turned off: matrix products and convolutions.

In: facts. Out: judgements.
"""

from __future__ import annotations

from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    OWN,
    CheckRow,
    Judgement,
    Value,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
    run_on_gpu,
    software_of,
    version_of,
)
from steptime.machine.checks.remedy import try_levers
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Cost

_TF32 = "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices"
_ON_GPU = Cost(of="matmul", low=1.0, high=7.0, source=f"{_TF32} (A100, 10240 x 10240)")
_ON_CPU = Cost(
    of="step",
    low=0.96,
    high=2.08,
    source=f"{OWN} (GPT 1.44, ResNet 0.96, MLP 2.08, LSTM 1.22 in CPU time)",
)
_TUNE = (try_levers("matmul_precision"),)

_MIN_SHARE = 0.5  # of the FLOP: below it, the other half decides
_MIN_CONVOLUTION = 0.2  # of the FLOP: for less, the algorithm hardly matters


def _matmul_precision(facts: CheckFacts) -> Judgement:
    capabilities = [version_of(gpu.compute_capability) for gpu in driven_gpus(facts)]
    has_tf32 = any(capability >= (8, 0) for capability in capabilities)
    has_amx = "amx_bf16" in facts.inventory.cpu.flags
    device = facts.run.device if facts.run is not None else None
    if device == "cpu" or (device is None and not driven_gpus(facts)):
        return _of_run(facts, device="cpu", cost=_ON_CPU) if has_amx else not_applicable("no_amx")
    return _of_run(facts, device="cuda", cost=_ON_GPU) if has_tf32 else not_applicable("no_tf32")


def _of_run(facts: CheckFacts, *, device: str, cost: Cost) -> Judgement:
    """Judge by the types that the last run multiplied; without a run, by the switch's default."""
    count = facts.run.measurement.count if facts.run is not None else None
    if count is None or sum(count.by_dtype.values()) == 0:
        return _of_switch(facts, device=device, cost=cost)
    share = count.by_dtype.get("fp32", 0) / sum(count.by_dtype.values())
    seen: dict[str, Value] = {"fp32_fraction": round(share, 3), "device": device}
    if share < _MIN_SHARE:
        return clean(seen)
    sure = Certainty.CERTAIN if device == "cuda" else Certainty.LIKELY
    return fires(Severity.WARNING, sure, seen=seen, cost=cost, commands=_TUNE)


def _of_switch(facts: CheckFacts, *, device: str, cost: Cost) -> Judgement:
    software = software_of(facts)
    if isinstance(software, partial):
        return software
    if software.matmul_precision is None:
        return not_checked("torch_did_not_tell")
    seen: dict[str, Value] = {"precision": software.matmul_precision, "device": device}
    if software.matmul_precision != "highest":
        return clean(seen)
    return fires(Severity.INFO, Certainty.POSSIBLE, seen=seen, cost=cost, commands=_TUNE)


def _cudnn_benchmark(facts: CheckFacts) -> Judgement:
    run = run_on_gpu(facts)
    if isinstance(run, partial):
        return run
    count = run.measurement.count
    if count is None or count.total == 0:
        return not_checked("work_not_counted")
    share = count.by_class.get("convolution", 0) / count.total
    if share < _MIN_CONVOLUTION:
        return not_applicable("few_convolutions")
    shapes = run.measurement.ranks[0].input_shapes
    if not shapes:
        return not_applicable("shapes_change")
    seen: dict[str, Value] = {"convolution_fraction": round(share, 3), "shape": shapes[0]}
    if any(word in run.script for word in ("cudnn.benchmark", "cudnn_benchmark")):
        return clean(seen)
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen=seen,
        advice=("Write `torch.backends.cudnn.benchmark = True` after `import torch`.",),
    )


CHECKS = (
    CheckRow(
        code="matmul_precision_highest",
        subject="precision",
        title="matmuls of float32 run in full precision",
        seen=(
            "{fp32_fraction} of the FLOP of the last run were of float32 on {device}",
            "a script finds the precision at `{precision}` on {device}",
        ),
        why="TF32 (GPU) or bf16 (CPU with AMX) multiply float32 several times faster with "
        "fewer bits of the mantissa. That rounds differently, so `tune` proves that the "
        "training stays as good.",
        source=_TF32,
        judge=_matmul_precision,
    ),
    CheckRow(
        code="cudnn_benchmark_off",
        subject="precision",
        title="cuDNN does not try its algorithms, though shapes are fixed",
        seen=(
            "convolutions are {convolution_fraction} of the FLOP of the last run",
            "its inputs were all {shape}",
            "the script names no cudnn.benchmark",
        ),
        why="With shapes that stay, the fastest algorithm is found once in the first steps and "
        "used from then on.",
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        judge=_cudnn_benchmark,
    ),
)
