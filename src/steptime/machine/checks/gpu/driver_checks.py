"""Checks NVIDIA's driver: whether it is there, and whether it answers.

In: facts. Out: judgements.
"""

from __future__ import annotations

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
    nvidia_gpus,
)
from steptime.machine.checks.remedy import Remedy, by_administrator, look, look_as_root
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Disruption

_RHEL = "dnf list --showduplicates 'cuda-drivers*' 'nvidia-driver*'"
_OFFERS = {
    "ubuntu": "ubuntu-drivers list --gpgpu",
    "debian": "apt-cache policy nvidia-driver",
    **dict.fromkeys(("rhel", "rocky", "almalinux", "fedora"), _RHEL),
}
"""Lists the drivers that a distribution offers; which of them is right the administrator knows."""

_INSTALL = (
    "Whoever administers the machine installs the driver from one source, the distribution's or "
    "NVIDIA's, while nothing uses the GPUs, and restarts the machine if modules cannot be reloaded."
)
_HOSTS_DRIVER = "The driver is the host's: whoever administers the host can update it."
_REBOOT = by_administrator("sudo reboot", Disruption.NODE)

_RELOAD = (
    "Trainings that began before the update may still run: let them end first. Then the modules "
    "can be unloaded and loaded again in place of a restart."
)
_LOAD_IT = (
    "The driver is installed, and its module is not in the kernel ({kernel}): most often it was "
    "not built for this kernel. Whoever administers the machine builds it and loads it."
)
_NOT_LOADED = "nvml_error_9"  # NVML_ERROR_DRIVER_NOT_LOADED
_LIBRARY_MISMATCH = "nvml_error_18"  # NVML_ERROR_LIB_RM_VERSION_MISMATCH


def _driver_missing(facts: CheckFacts) -> Judgement:
    gpus = nvidia_gpus(facts)
    if not gpus:
        return not_applicable("no_nvidia_gpu")
    word = facts.inventory.missing.get("gpus")
    if any(gpu.has_driver for gpu in gpus):
        return clean({"driver": facts.inventory.nvidia_driver or "?"})
    if word == _LIBRARY_MISMATCH or facts.system.has_nvidia_module:
        return clean({"driver": "in the kernel"})  # `_driver_silent` says whether it answers
    if facts.inventory.limits.container is not None:
        return not_applicable("driver_is_the_hosts")
    if word == "no_binding":
        return not_checked("no_binding")
    commands, advice = install_driver(facts)
    if word == _NOT_LOADED:
        commands, advice = (look("dkms status"),), (_LOAD_IT.format(kernel=facts.inventory.kernel),)
    return fires(
        Severity.CRITICAL,
        Certainty.LIKELY,  # a card that only drives a screen is on the bus as well
        seen={"num_gpus": len(gpus), "reason": word or "not_told"},
        cost=FAILURE,
        commands=commands,
        advice=advice,
    )


def install_driver(facts: CheckFacts) -> Remedy:
    """Return what shows the drivers that can be had, and advice on how one is installed."""
    if facts.inventory.limits.container is not None:
        return (), (_HOSTS_DRIVER,)
    line = _OFFERS.get(facts.system.os_id or "")
    return (() if line is None else (look(line),)), (_INSTALL,)


def _driver_silent(facts: CheckFacts) -> Judgement:
    """Judge a driver that is in the kernel, but does not report the GPUs."""
    word = facts.inventory.missing.get("gpus")
    is_there = facts.system.has_nvidia_module or word == _LIBRARY_MISMATCH
    if not is_there:
        return not_applicable("no_nvidia_driver")
    if driven_gpus(facts):
        return clean({"driver": facts.inventory.nvidia_driver or "?"})
    if facts.inventory.limits.container is not None and not facts.system.has_nvidia_files:
        return not_applicable("driver_is_the_hosts")
    if word == "no_binding":
        return not_checked("no_binding")
    commands = (look("nvidia-smi"), look_as_root("sudo dmesg | grep -i nvrm | tail"))
    advice: tuple[str, ...] = ()
    seen: dict[str, Value] = {"silence": word or "not_told"}
    if word == _LIBRARY_MISMATCH:
        seen = {"mismatch": "NVML error 18"}
        commands, advice = (look("cat /proc/driver/nvidia/version"), _REBOOT), (_RELOAD,)
    return fires(
        Severity.CRITICAL,
        Certainty.CERTAIN,
        seen=seen,
        cost=FAILURE,
        commands=commands,
        advice=advice,
    )


CHECKS = (
    CheckRow(
        code="driver_missing",
        subject="software",
        title="NVIDIA's driver is missing",
        seen=("{num_gpus} GPU(s) of NVIDIA's on the PCI bus, and no driver that speaks for them",),
        why="Without it no program can use the GPU: a script trains on the processor, or fails.",
        source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
        judge=_driver_missing,
    ),
    CheckRow(
        code="driver_silent",
        subject="software",
        title="NVIDIA's driver is there and does not answer",
        seen=(
            "driver and library are of different versions ({mismatch})",
            "asked, it says: {silence}",
        ),
        why="After an update the old driver stays in the kernel until it is loaded again; a "
        "GPU that fell off the bus can silence it too. CUDA cannot start.",
        source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
        judge=_driver_silent,
    ),
)
