"""Checks driver, CUDA, cuDNN, NCCL and torch against each other, and against the GPUs.

In: facts. Out: judgements.
"""

from __future__ import annotations

import shlex
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    CheckRow,
    Judgement,
    Value,
    asked_gpus,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
    nvidia_gpus,
    software_of,
    version_of,
)
from steptime.machine.checks.gpu.driver_checks import install_driver
from steptime.machine.checks.remedy import Remedy, in_shell, look
from steptime.machine.checks.software.torch_builds import (
    change_build,
    install,
    is_covered,
    newer_torch,
)
from steptime.machine.values.check_facts import CheckFacts, Pin, Software
from steptime.machine.values.check_values import Certainty, Cost

COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"

MIN_DRIVERS = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}
"""Lowest driver for any minor release of a CUDA major version on Linux (`COMPATIBILITY`, table 1,
with the full numbers of the CUDA Toolkit's release notes)."""

_ON_PURPOSE = (
    "Another package may have brought its own version along. If none asks for it, install what "
    "torch asks for: `{wanted}`."
)

_OLDEST = (5, 0)
"""Torch with CUDA 12 has no code below this capability (Maxwell)."""


def _cpu_build(facts: CheckFacts) -> Judgement:
    if not nvidia_gpus(facts):
        return not_applicable("no_nvidia_gpu")
    known = [version_of(gpu.compute_capability) for gpu in driven_gpus(facts)]
    if known and all(capability and capability < _OLDEST for capability in known):
        return not_applicable("gpu_too_old")
    software = software_of(facts)
    if isinstance(software, partial):
        return software
    if software.cuda is not None:
        return clean({"torch": software.torch, "cuda": software.cuda})
    sure = Certainty.CERTAIN if known else Certainty.LIKELY
    commands, advice = change_build(facts, software)
    return fires(
        Severity.CRITICAL,
        sure,
        seen={"torch": software.torch, "num_gpus": len(nvidia_gpus(facts))},
        commands=commands,
        advice=advice,
    )


def _cuda_build(facts: CheckFacts) -> Software | Judgement:
    """Return a torch with CUDA if GPUs have a driver; else why there is nothing to compare."""
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    software = software_of(facts)
    if isinstance(software, Software) and software.cuda is None:
        return not_applicable("torch_without_cuda")
    return software


def _driver_too_old(facts: CheckFacts) -> Judgement:
    software = _cuda_build(facts)
    if isinstance(software, partial):
        return software
    driver, cuda = version_of(facts.inventory.nvidia_driver), version_of(software.cuda)
    if not driver or not cuda:
        return not_checked("driver_not_told")
    lowest = MIN_DRIVERS.get(cuda[0])
    if lowest is None:
        return not_checked("no_rule_for_this_cuda")
    seen: dict[str, Value] = {
        "driver": facts.inventory.nvidia_driver or "",
        "cuda": software.cuda or "",
        "lowest_driver": ".".join(map(str, lowest)),
    }
    # NVIDIA's compatibility package lets older drivers of data-center GPUs run newer CUDA.
    if driver >= lowest or (software.num_devices or 0) > 0:
        return clean(seen)
    commands, advice = change_build(facts, software)
    offered, update = install_driver(facts)
    return fires(
        Severity.CRITICAL,
        Certainty.CERTAIN,
        seen=seen,
        cost=FAILURE,
        commands=(*commands, *offered),
        advice=(*advice, *update),
    )


def _no_device(facts: CheckFacts) -> Judgement:
    software = _cuda_build(facts)
    if isinstance(software, partial):
        return software
    if software.num_devices is None:
        return not_checked("torch_did_not_tell")
    if software.num_devices > 0:
        return clean({"num_devices": software.num_devices})
    if "CUDA_VISIBLE_DEVICES" in facts.environment:
        return not_applicable("hidden_by_a_variable")
    return fires(
        Severity.CRITICAL,
        Certainty.CERTAIN,
        seen={
            "num_gpus": len(driven_gpus(facts)),
            "torch": software.torch,
            "error": software.cuda_error or "torch gives no reason",
        },
        commands=(look(f"{shlex.quote(software.python)} -c 'import torch; torch.cuda.init()'"),),
    )


def _architecture(facts: CheckFacts) -> Judgement:
    software = _cuda_build(facts)
    if isinstance(software, partial):
        return software
    gpus = [gpu for gpu in driven_gpus(facts) if gpu.compute_capability]
    if not gpus or not software.architectures:
        return not_checked("architecture_not_told")
    lacking = [
        gpu
        for gpu in gpus
        if not is_covered(version_of(gpu.compute_capability), software.architectures)
    ]
    held = " ".join(software.architectures)
    commands, advice = change_build(facts, software)
    if not lacking:
        return clean({"architectures": held})
    return fires(
        Severity.CRITICAL,
        Certainty.CERTAIN,
        seen={
            "gpu": lacking[0].name or "GPU",
            "capability": lacking[0].compute_capability or "",
            "torch": software.torch,
            "architectures": held,
        },
        cost=FAILURE,
        commands=commands,
        advice=advice,
    )


def _cudnn_differs(facts: CheckFacts) -> Judgement:
    software = _cuda_build(facts)
    if isinstance(software, partial):
        return software
    built, here = software.cudnn_built, software.cudnn_here
    if not built or not here:
        return not_checked("torch_did_not_tell")
    seen: dict[str, Value] = {
        "built": ".".join(map(str, built)),
        "loaded": ".".join(map(str, here)),
    }
    if built[0] == here[0] and here[1:2] >= built[1:2]:
        return clean(seen)
    commands, advice = _own_cudnn(facts, software)
    return fires(
        Severity.CRITICAL,
        Certainty.CERTAIN,
        seen=seen,
        cost=FAILURE,
        commands=commands,
        advice=advice,
    )


def _own_cudnn(facts: CheckFacts, software: Software) -> Remedy:
    """Return what lets torch load the cuDNN that it was built with, and leaves the rest alone."""
    modules = facts.environment.get("LOADEDMODULES", "").split(":")
    named = [name for name in modules if name.lower().startswith("cudnn")]
    if software.cudnn_folders and named:
        return (in_shell("module unload " + " ".join(map(shlex.quote, named))),), ()
    if software.cudnn_folders:
        folders = facts.environment.get("LD_LIBRARY_PATH", "").split(":")
        rest = ":".join(one for one in folders if one and one not in software.cudnn_folders)
        return (in_shell(f"export LD_LIBRARY_PATH={shlex.quote(rest)}"),), ()
    wrong = [p for p in software.pins if "cudnn" in p.name and p.installed != p.wanted]
    if wrong:
        return install(facts, software, [f"{pin.name}=={pin.wanted}" for pin in wrong])
    return (look("ldconfig -p | grep libcudnn"),), (
        "No folder of LD_LIBRARY_PATH holds a cuDNN: look where else this Python finds one.",
    )


def _packages_differ(facts: CheckFacts) -> Judgement:
    software = software_of(facts)
    if isinstance(software, partial):
        return software
    if software.cuda is None:
        return not_applicable("torch_without_cuda")
    wrong = [pin for pin in software.pins if pin.installed != pin.wanted]
    if not wrong:
        return clean({"num_packages": len(software.pins)})
    python = shlex.quote(software.python)
    wanted = " ".join(f"{pin.name}=={pin.wanted}" for pin in wrong)
    is_major = any(version_of(pin.installed)[:1] != version_of(pin.wanted)[:1] for pin in wrong)
    return fires(
        Severity.WARNING if is_major else Severity.INFO,
        Certainty.POSSIBLE,
        seen={"packages": ", ".join(map(_describe, wrong)), "torch": software.torch},
        commands=(look(f"{python} -m pip check"),) if software.has_pip else (),
        advice=(_ON_PURPOSE.format(wanted=wanted),),
    )


def _describe(pin: Pin) -> str:
    return f"{pin.name} {pin.installed} (torch asks for {pin.wanted})"


def _without_nccl(facts: CheckFacts) -> Judgement:
    software = _cuda_build(facts)
    if isinstance(software, partial):
        return software
    if len(driven_gpus(facts)) < 2:
        return not_applicable("one_gpu")
    if software.has_nccl is None:
        return not_checked("torch_did_not_tell")
    if software.has_nccl:
        return clean({"nccl": software.nccl or "?"})
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen={"torch": software.torch, "num_gpus": len(driven_gpus(facts))},
        advice=(
            "PyTorch's own builds for Linux have NCCL: this one was made by somebody else, who can "
            "say why. Try an official build in an environment of its own (`python -m venv`).",
        ),
    )


_ATTENTION = Cost(of="attention", low=1.0, high=2.0, source="https://pytorch.org/blog/pytorch2-2/")
_ONE_MODEL = Cost(
    of="step",
    low=1.0,
    high=1.16,
    source="https://github.com/stas00/ml-engineering (Llama 8B on 8 GPUs, torch 2.11 against 2.12)",
)


def _old_torch(facts: CheckFacts) -> Judgement:
    software = _cuda_build(facts)
    if isinstance(software, partial):
        return software
    version = version_of(software.torch)[:2]
    seen: dict[str, Value] = {"torch": software.torch}
    # There is a figure only from Ampere on.
    newest = max((version_of(gpu.compute_capability) for gpu in driven_gpus(facts)), default=())
    if newest < (8, 0):
        return not_checked("no_figure_for_these_gpus")
    if version >= (2, 12):
        return clean(seen)
    advice = (newer_torch(facts),)
    if version < (2, 2):
        return fires(Severity.WARNING, Certainty.LIKELY, seen=seen, cost=_ATTENTION, advice=advice)
    return fires(Severity.INFO, Certainty.POSSIBLE, seen=seen, cost=_ONE_MODEL, advice=advice)


CHECKS = (
    CheckRow(
        code="cpu_build_beside_gpu",
        subject="software",
        title="torch was built without CUDA, beside a GPU",
        seen=("torch {torch}", "{num_gpus} GPU(s) of NVIDIA's"),
        why="This torch cannot use the GPU: everything runs on the processor.",
        source="https://pytorch.org/get-started/locally/",
        judge=_cpu_build,
    ),
    CheckRow(
        code="driver_too_old",
        subject="software",
        title="the driver is too old for torch's CUDA",
        seen=("driver {driver}", "torch with CUDA {cuda}, which needs {lowest_driver}"),
        why="Within a major release CUDA runs on any driver from a lowest one on; this one is "
        "below it, so CUDA does not start.",
        source=COMPATIBILITY,
        judge=_driver_too_old,
    ),
    CheckRow(
        code="torch_sees_no_gpu",
        subject="software",
        title="torch sees no GPU though the driver does",
        seen=("{num_gpus} GPU(s) answer the driver, none torch {torch}", "{error}"),
        why="A script that asks whether there is a GPU gets a no, and trains on the processor.",
        source="https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html",
        judge=_no_device,
    ),
    CheckRow(
        code="architecture_not_built",
        subject="software",
        title="torch holds no code for this GPU",
        seen=("{gpu} has capability {capability}", "torch {torch} has code for {architectures}"),
        why="The first kernel ends with `no kernel image is available`.",
        source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",
        judge=_architecture,
    ),
    CheckRow(
        code="cudnn_differs",
        subject="software",
        title="another cuDNN is loaded than torch was built with",
        seen=("built with {built}, loaded {loaded}",),
        why="torch refuses a cuDNN of another major or an older minor version; most often "
        "LD_LIBRARY_PATH puts a system's one in front.",
        source="torch/backends/cudnn/__init__.py (its own rule: same major, no older minor)",
        judge=_cudnn_differs,
    ),
    CheckRow(
        code="cuda_packages_differ",
        subject="software",
        title="NVIDIA's libraries are not those that torch asks for",
        seen=("{packages}",),
        why="torch was tested with the versions it asks for. A newer NCCL or cuDNN may be on "
        "purpose; one that another package brought along is not.",
        source="requirements of the installed torch (its package metadata)",
        judge=_packages_differ,
    ),
    CheckRow(
        code="torch_without_nccl",
        subject="software",
        title="torch was built without NCCL, beside several GPUs",
        seen=("torch {torch}", "{num_gpus} GPUs"),
        why="Ranks on GPUs can then only reduce by gloo, through the memory of the host.",
        source="https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use",
        judge=_without_nccl,
    ),
    CheckRow(
        code="old_torch",
        subject="software",
        title="a newer torch is known to be faster on such a GPU",
        seen=("torch {torch}",),
        why="Before 2.2 attention ran without FlashAttention-2; from 2.11 to 2.12 the training "
        "of one published model became faster.",
        source="https://github.com/pytorch/pytorch/releases",
        judge=_old_torch,
    ),
)
