"""Checks variables of this shell that slow a training down: debug switches, hidden GPUs.

In: facts. Out: judgements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    Value,
    asked_gpus,
    clean,
    fires,
    is_on,
    not_applicable,
)
from steptime.machine.checks.remedy import Remedy, look, unset
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty
from steptime.record.numbers_told import whole_number_in

_TORCH = "https://docs.pytorch.org/docs/stable/"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_CUDA = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"
_ASK_FOR_GPUS = (
    "The scheduler gave this job no GPU, and those of the machine are other jobs': ask for some "
    "when you hand the job in (for Slurm `--gpus-per-node`)."
)
_OWN_GPUS = "If nothing of yours runs on the others, unset CUDA_VISIBLE_DEVICES."
_SHARED_GPUS = "Other people use this machine: take GPUs that no one works on, as you agreed."


def _among(*words: str) -> Callable[[str], bool]:
    return lambda value: value.strip().upper() in words


def _is_zero(value: str) -> bool:
    return value.strip() == "0"


def _is_set(value: str) -> bool:
    return bool(value.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    """A check of variables: it fires for any of `names` whose value `slows`.

    One that `is_guard` may have been set to get around a fault.
    """

    code: str
    title: str
    why: str
    names: tuple[str, ...]
    source: str
    slows: Callable[[str], bool] = is_on
    severity: Severity = Severity.WARNING
    certainty: Certainty = Certainty.CERTAIN
    needs_gpu: bool = False
    is_guard: bool = False


_VARIABLES = (
    _Variable(
        code="launch_blocking",
        title="each launch waits for its kernel",
        why="Host and GPU take turns instead of working side by side. It is meant for debugging.",
        names=("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING"),
        source=f"{_TORCH}notes/cuda.html#asynchronous-execution",
        severity=Severity.CRITICAL,
        needs_gpu=True,
    ),
    _Variable(
        code="nccl_verbose",
        title="NCCL writes a log",
        why="NCCL's guide says to keep debug variables out of production. TRACE writes a line "
        "for each call.",
        names=("NCCL_DEBUG",),
        source=f"{_NCCL}#nccl-debug",
        slows=_among("INFO", "TRACE"),
        severity=Severity.INFO,
        certainty=Certainty.POSSIBLE,
    ),
    _Variable(
        code="distributed_debug",
        title="torch.distributed checks each collective",
        why="DETAIL compares shapes among all ranks before each collective, over gloo.",
        names=("TORCH_DISTRIBUTED_DEBUG",),
        source=f"{_TORCH}distributed.html#torch-distributed-debug",
        slows=_among("DETAIL"),
    ),
    _Variable(
        code="no_memory_caching",
        title="each tensor asks the driver for its memory",
        why="Every allocation and release on the GPU goes to the driver and waits for the device.",
        names=("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"),
        source=f"{_TORCH}cuda_environment_variables.html",
        severity=Severity.CRITICAL,
        slows=_is_set,
        needs_gpu=True,
    ),
    _Variable(
        code="tf32_forbidden",
        title="a variable forbids TF32",
        why="It overrides whatever the script sets, in all of NVIDIA's libraries.",
        names=("NVIDIA_TF32_OVERRIDE",),
        source="https://developer.nvidia.com/blog/accelerating-ai-training-with-tf32-tensor-cores/",
        slows=_is_zero,
        needs_gpu=True,
        is_guard=True,
    ),
    _Variable(
        code="compile_disabled",
        title="torch.compile does nothing",
        why="Models that the script compiles run eagerly.",
        names=("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"),
        source=f"{_TORCH}torch.compiler_troubleshooting.html",
        certainty=Certainty.POSSIBLE,
        is_guard=True,
    ),
    _Variable(
        code="compile_debug",
        title="torch.compile writes what it does",
        why="Logs and dumped code make each compilation longer.",
        names=("TORCH_COMPILE_DEBUG", "TORCH_LOGS"),
        source=f"{_TORCH}torch.compiler_troubleshooting.html",
        slows=_is_set,
        severity=Severity.INFO,
        certainty=Certainty.POSSIBLE,
    ),
    _Variable(
        code="library_verbose",
        title="a library writes a line for each call",
        why="Each matmul or convolution is timed and printed.",
        names=("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKL_VERBOSE"),
        source="https://uxlfoundation.github.io/oneDNN/dev_guide_verbose.html",
        slows=lambda value: value.strip().lower() not in ("", "0", "none"),
    ),
    _Variable(
        code="malloc_debug",
        title="memory is checked at each allocation",
        why="Each block is filled or verified as it is taken and freed.",
        names=("MALLOC_CHECK_", "MALLOC_PERTURB_", "PYTHONMALLOC"),
        source="https://www.gnu.org/software/libc/manual/html_node/Heap-Consistency-Checking.html",
        slows=lambda value: value.endswith("debug") or (value.isdigit() and value != "0"),
    ),
    _Variable(
        code="python_debug",
        title="Python runs in a debug mode",
        why="Checks and traces of memory slow down each line of Python.",
        names=("PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONPROFILEIMPORTTIME"),
        source="https://docs.python.org/3/library/devmode.html",
        severity=Severity.INFO,
        certainty=Certainty.LIKELY,
    ),
    _Variable(
        code="modules_loaded_eagerly",
        title="all kernels of CUDA are loaded at the start",
        why="They take memory of the GPU and time at the start, whether they are used or not.",
        names=("CUDA_MODULE_LOADING",),
        source=_CUDA,
        slows=_among("EAGER"),
        severity=Severity.INFO,
        needs_gpu=True,
    ),
    _Variable(
        code="peer_access_disabled",
        title="a variable forbids the short ways between GPUs",
        why="NCCL then goes through the memory of the host, or even the network.",
        names=("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"),
        source=f"{_NCCL}#nccl-p2p-disable",
        certainty=Certainty.LIKELY,
        needs_gpu=True,
        is_guard=True,
    ),
    _Variable(
        code="nccl_choice_forced",
        title="a variable forces NCCL's algorithm",
        why="NCCL chooses by size and topology; what was best for one payload or machine is "
        "not for all.",
        names=("NCCL_ALGO", "NCCL_PROTO"),
        source=f"{_NCCL}#nccl-algo",
        slows=_is_set,
        severity=Severity.INFO,
        certainty=Certainty.POSSIBLE,
        needs_gpu=True,
        is_guard=True,
    ),
)


def _judge(variable: _Variable, facts: CheckFacts) -> Judgement:
    found = [
        name
        for name in variable.names
        if name in facts.environment and variable.slows(facts.environment[name])
    ]
    if variable.needs_gpu and not facts.inventory.gpus:
        return not_applicable("no_gpu")
    if not found:
        return clean()
    commands, advice = unset(facts, found, is_guard=variable.is_guard)
    return fires(
        variable.severity,
        variable.certainty,
        seen={"variables": ", ".join(f"{name}={facts.environment[name]}" for name in found)},
        commands=commands,
        advice=advice,
    )


def _row(variable: _Variable) -> CheckRow:
    return CheckRow(
        code=variable.code,
        subject="environment",
        title=variable.title,
        seen=("{variables}",),
        why=variable.why,
        source=variable.source,
        judge=lambda facts: _judge(variable, facts),
    )


def _gpus_hidden(facts: CheckFacts) -> Judgement:
    gpus = asked_gpus(facts)
    if isinstance(gpus, partial):
        return gpus
    value = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return clean()
    shown = _shown(value, [gpu.uuid or "" for gpu in gpus])
    seen: dict[str, Value] = {
        "value": value or "(empty)",
        "num_shown": shown,
        "num_gpus": len(gpus),
    }
    if shown == 0:
        commands, advice = _show_gpus(facts)
        return fires(
            Severity.CRITICAL, Certainty.CERTAIN, seen=seen, commands=commands, advice=advice
        )
    if shown >= len(gpus) or facts.site.in_job:
        return clean(seen)
    return fires(
        Severity.INFO,
        Certainty.POSSIBLE,
        seen=seen,
        commands=(look("nvidia-smi"),),
        advice=(_SHARED_GPUS if facts.site.is_shared else _OWN_GPUS,),
    )


def _show_gpus(facts: CheckFacts) -> Remedy:
    """Return what shows all GPUs, where nobody hands them out."""
    if facts.site.in_job:
        return (), (_ASK_FOR_GPUS,)
    if facts.site.is_shared:
        return (look("nvidia-smi"),), (_SHARED_GPUS,)
    return unset(facts, ["CUDA_VISIBLE_DEVICES"])


def _shown(value: str, uuids: list[str]) -> int:
    """Return how many GPUs the list names; CUDA stops at the first invalid word."""
    shown: set[str] = set()
    for word in value.split(","):
        name = word.strip()
        number = whole_number_in(name)
        is_number = number is not None and number < len(uuids)
        is_uuid = name.startswith("GPU-") and any(uuid.startswith(name) for uuid in uuids)
        if not (is_number or is_uuid or name.startswith("MIG-")):
            break
        shown.add(name)
    return len(shown)


CHECKS = (
    *(_row(variable) for variable in _VARIABLES),
    CheckRow(
        code="gpus_hidden",
        subject="environment",
        title="CUDA_VISIBLE_DEVICES hides GPUs",
        seen=("it is {value}", "{num_shown} of {num_gpus} GPUs are seen"),
        why="What it does not name does not exist for CUDA. That may be on purpose.",
        source=_CUDA,
        judge=_gpus_hidden,
    ),
)
