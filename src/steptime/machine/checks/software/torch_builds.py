"""Chooses the build of torch that runs on these GPUs with this driver, and says how to install it.

In: facts. Out: a command that changes the build alone, and not the version, or advice. Which
builds were published, and what they hold code for, is in `_BUILDS`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.machine.checks.check_row import driven_gpus, version_of
from steptime.machine.checks.remedy import Remedy, by_user
from steptime.machine.values.check_facts import CheckFacts, Software
from steptime.machine.values.check_values import Disruption
from steptime.record.numbers_told import whole_number_in


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """A build of torch for x86-64 with Linux.

    Attributes:
        word: its part of a version, and its folder in the index.
        cuda: CUDA that it was made with.
        first, last: the first and the last version of torch that has it.
        architectures: what it holds code for.
    """

    word: str
    cuda: tuple[int, int]
    first: tuple[int, int]
    last: tuple[int, int]
    architectures: tuple[str, ...]


_NO_END = (99, 0)
_FROM_MAXWELL = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
_FROM_TURING = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
_BUILDS = (
    _Build(
        word="cu130",
        cuda=(13, 0),
        first=(2, 9),
        last=_NO_END,
        architectures=(*_FROM_TURING, "compute_120"),
    ),
    _Build(word="cu128", cuda=(12, 8), first=(2, 7), last=(2, 11), architectures=_FROM_TURING),
    _Build(word="cu126", cuda=(12, 6), first=(2, 6), last=(2, 14), architectures=_FROM_MAXWELL),
)
"""Newest first. Builds and architectures: PyTorch's RELEASE.md and its CUDA support matrices
(issues 157517, 178665, 190385 of pytorch/pytorch); Volta is left out of cu128, which had it only at
times. CUDA 13 has no code below 7.5 (CUDA's release notes)."""

_INDEX = "https://download.pytorch.org/whl"
_MINOR_COMPATIBLE = (525, 60, 13)
"""Lowest driver for every minor release of CUDA 12 (`driver_too_old` has the source)."""

_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_LOST = "In a container the change is lost with it: make it in the image."
_NOT_YOURS = (
    "The packages of this Python are not yours to change: install {what} in an environment of your "
    "own (`python -m venv`)."
)
_CONDA = "conda made this environment: let it install {what}, so that its packages stay consistent."


def change_build(facts: CheckFacts, software: Software) -> Remedy:
    """Return how to get the same version of torch in a build that fits driver and GPUs."""
    if facts.inventory.cpu.architecture != "x86_64" or _release_of(software.torch) is None:
        return (), ("Ask whoever built this torch for one that fits the GPUs and the driver.",)
    capabilities = _capabilities(facts)
    if not capabilities:
        return (), ("Install the driver first: which build fits depends on it and on the GPUs.",)
    build = _fitting(facts, capabilities, version=version_of(software.torch)[:2])
    if build is None:
        return (), (_other_version(facts, capabilities),)
    words = [f"torch=={_release_of(software.torch)}+{build.word}"]
    for name, version in software.companions:
        words.append(f"{name}=={_release_of(version) or version}+{build.word}")
    return install(facts, software, words, index=f"{_INDEX}/{build.word}")


def install(
    facts: CheckFacts, software: Software, packages: Sequence[str], *, index: str | None = None
) -> Remedy:
    """Return how to install packages for the user's Python, with whatever installed torch.

    Args:
        facts: what the checks judge.
        software: the torch that is installed.
        packages: names with versions.
        index: address of the index; None for the usual one.
    """
    what = " ".join(packages)
    options = "" if index is None else f" --index-url {index}"
    if software.installer == "conda":
        return (), (_CONDA.format(what=f"`{what}`"),)
    is_everybodys = facts.site.is_root and facts.site.is_shared and not _is_inside(facts)
    if not software.is_writable or software.is_managed or is_everybodys:
        return (), (_NOT_YOURS.format(what=f"`{what}{options}`"),)
    python = shlex.quote(software.python)
    tool = f"{python} -m pip install"
    if software.installer == "uv":
        tool = f"uv pip install --python {python}"
    elif not software.has_pip:
        return (), (_NOT_YOURS.format(what=f"`{what}{options}`"),)
    advice = (_LOST,) if _is_inside(facts) else ()
    return (by_user(f"{tool} {what}{options}", Disruption.PACKAGES),), advice


def _is_inside(facts: CheckFacts) -> bool:
    return facts.inventory.limits.container is not None


def newer_torch(facts: CheckFacts) -> str:
    """Return advice on a newer torch: it may change results, so it belongs beside the old one."""
    for build in _BUILDS:
        if build.last == _NO_END and _fits(build, facts, _capabilities(facts)):
            return (
                "Try a newer torch in an environment of its own (`python -m venv`), with the build "
                f"of {_INDEX}/{build.word}, which fits the driver and the GPUs here; then compare."
            )
    return (
        "The builds of the newest torch do not fit this driver, or not all GPUs here: stay, until "
        "whoever administers the machine updates the driver."
    )


def is_covered(here: tuple[int, ...], architectures: Sequence[str]) -> bool:
    """Return whether code for one of the architectures runs on a GPU of this capability."""
    for word in architectures:
        kind, _, digits = word.partition("_")
        number = digits.rstrip("af")
        major, minor = whole_number_in(number[:-1]), whole_number_in(number[-1:])
        if major is None or minor is None:
            continue
        code = (major, minor)
        if digits != number:  # for one architecture (a) or family (f) alone
            covers = code == here or (digits.endswith("f") and code[0] == here[0] and code <= here)
        elif kind == "compute":  # the driver compiles it for newer GPUs
            covers = code <= here
        else:
            covers = code[0] == here[0] and code <= here
        if covers:
            return True
    return False


def _capabilities(facts: CheckFacts) -> tuple[tuple[int, ...], ...]:
    told = [version_of(gpu.compute_capability) for gpu in driven_gpus(facts)]
    return tuple(capability for capability in told if capability)


def _fitting(
    facts: CheckFacts, capabilities: Sequence[tuple[int, ...]], *, version: tuple[int, ...]
) -> _Build | None:
    """Return the newest build of this version that runs on all GPUs with this driver."""
    fitting = [
        build
        for build in _BUILDS
        if build.first <= version <= build.last and _fits(build, facts, capabilities)
    ]
    return next((b for b in fitting if _is_as_new(b, facts)), fitting[-1] if fitting else None)


def _fits(build: _Build, facts: CheckFacts, capabilities: Sequence[tuple[int, ...]]) -> bool:
    if not all(is_covered(one, build.architectures) for one in capabilities):
        return False
    if _is_as_new(build, facts):
        return True
    return build.cuda[0] == 12 and version_of(facts.inventory.nvidia_driver) >= _MINOR_COMPATIBLE


def _is_as_new(build: _Build, facts: CheckFacts) -> bool:
    """Return whether the driver is at least as new as the build's CUDA."""
    return version_of(facts.inventory.cuda_driver) >= build.cuda


def _other_version(facts: CheckFacts, capabilities: Sequence[tuple[int, ...]]) -> str:
    for build in _BUILDS:
        if _fits(build, facts, capabilities):
            last = "on" if build.last == _NO_END else f"to {_dotted(build.last)}"
            return (
                f"No build of this version fits the driver and all GPUs here: those of {build.word}"
                f" do, from torch {_dotted(build.first)} {last}. Try one in an environment of its "
                "own (`python -m venv`), since another version may change results."
            )
    return "No published build of torch fits both this driver and all GPUs here."


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _release_of(version: str) -> str | None:
    """Return the version without its build; None for a version that was never published."""
    found = version.partition("+")[0]
    return found if _RELEASE.fullmatch(found) else None
