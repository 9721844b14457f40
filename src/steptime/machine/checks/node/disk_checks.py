"""Checks where the data lies, and the free space there and where checkpoints go.

In: facts. Out: judgements.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    CheckRow,
    Judgement,
    Value,
    clean,
    fires,
    not_applicable,
    not_checked,
)
from steptime.machine.checks.remedy import look
from steptime.machine.values.check_facts import CheckFacts, LastRun, Space
from steptime.machine.values.check_values import Certainty, Cost

_STORAGE = "https://github.com/stas00/ml-engineering/tree/master/storage"
_OPEN = Cost(
    of="open",
    low=1.0,
    high=215.0,
    source=f"{_STORAGE} (files that `import torch` opens: 0.02 s on NVMe, 4.3 s on Lustre)",
)
_MIN_WAIT = 0.05  # of a step: below it, loading keeps up wherever the data lies

_STAGE = (
    "Pack many small files into a few large ones, or copy what one job reads to a disk of its "
    "machine before it starts (in a job, the folder that the scheduler gives it)."
)
_QUOTA = "The file server knows what fills it: ask for your quota, or for the server's own report."
_FASTER_DISK = "Move the data to an SSD, or pack it so that it is read in the order it lies in."

_FULL_FRACTION = 0.05
_FULL_BYTES = 20 << 30  # a few checkpoints of a model with a billion parameters
_EMPTY_BYTES = 1 << 30
_FULL_FILES = 0.02


def _data_on_network(facts: CheckFacts) -> Judgement:
    data = facts.inventory.data
    if data.mount is None:
        return not_checked("file_system_not_told")
    seen: dict[str, Value] = {"folder": data.folder, "kind": data.mount.kind}
    if not data.mount.is_network:
        return clean(seen)
    wait = _input_wait(facts.run)
    if wait is not None:
        seen["input_wait_fraction"] = round(wait, 3)
        if wait < _MIN_WAIT:
            return clean(seen)
    return fires(
        Severity.INFO if wait is None else Severity.WARNING,
        Certainty.POSSIBLE if wait is None else Certainty.LIKELY,
        seen=seen,
        cost=_OPEN,
        advice=(_STAGE,),
    )


def _input_wait(run: LastRun | None) -> float | None:
    if run is None:
        return None
    found = [phase.fraction for phase in run.measurement.phases if phase.name == "input_wait"]
    return found[0] if found else None


def _disk_full(facts: CheckFacts) -> Judgement:
    spaces = facts.system.spaces
    if not spaces:
        return not_checked("not_told")
    full = [space for space in spaces if _is_full(space)]
    if not full:
        least = min(spaces, key=lambda space: space.free_bytes)
        return clean(
            {
                "folder": least.folder,
                "what": least.what,
                "free_bytes": least.free_bytes,
                "total_bytes": least.total_bytes,
            }
        )
    worst = min(full, key=lambda space: space.free_bytes)
    seen: dict[str, Value] = {
        "folder": worst.folder,
        "what": worst.what,
        "free_bytes": worst.free_bytes,
        "total_bytes": worst.total_bytes,
    }
    if _lacks_files(worst):
        seen["num_free"] = worst.num_free or 0
    return fires(
        Severity.CRITICAL if worst.free_bytes < _EMPTY_BYTES else Severity.WARNING,
        Certainty.LIKELY,
        seen=seen,
        cost=FAILURE,
        commands=(look(_what_fills(facts, worst)),),
        advice=(_QUOTA,) if _is_on_network(facts, worst.folder) else (),
    )


def _what_fills(facts: CheckFacts, space: Space) -> str:
    """Return what shows the space; a tree on a server is not walked, which would slow others."""
    folder = shlex.quote(space.folder)
    if _is_on_network(facts, space.folder):
        return f"df -h {folder}"
    return f"nice ionice -c 3 du -xh --max-depth=2 {folder} 2>/dev/null | sort -h | tail -20"


def _is_on_network(facts: CheckFacts, folder: str) -> bool:
    mounts = [one for one in facts.inventory.mounts if Path(folder).is_relative_to(one.folder)]
    nearest = max(mounts, key=lambda one: len(one.folder), default=None)
    return nearest is not None and nearest.is_network


def _is_full(space: Space) -> bool:
    if space.total_bytes <= 0:
        return False
    is_full = space.free_bytes < _FULL_FRACTION * space.total_bytes
    return (is_full and space.free_bytes < _FULL_BYTES) or _lacks_files(space)


def _lacks_files(space: Space) -> bool:
    if not space.num_files or space.num_free is None:
        return False  # a file system without such a limit reports zero
    return space.num_free < _FULL_FILES * space.num_files


def _turning_disk(facts: CheckFacts) -> Judgement:
    mount = facts.inventory.data.mount
    if mount is None or not mount.disks:
        return not_applicable("no_local_disk")
    turning = [
        disk.name
        for disk in facts.inventory.disks
        if disk.name in mount.disks and disk.is_rotational
    ]
    if not turning:
        return clean({"disk": " ".join(mount.disks)})
    wait = _input_wait(facts.run)
    if wait is not None and wait < _MIN_WAIT:
        return clean({"disk": turning[0], "input_wait_fraction": round(wait, 3)})
    return fires(
        Severity.INFO if wait is None else Severity.WARNING,
        Certainty.POSSIBLE if wait is None else Certainty.LIKELY,
        seen={"disk": turning[0], "folder": facts.inventory.data.folder},
        advice=(_FASTER_DISK,),
    )


CHECKS = (
    CheckRow(
        code="data_on_network",
        subject="disk",
        title="the data lies on a network file system",
        seen=("{folder} is on {kind}", "steps wait for input {input_wait_fraction} of their time"),
        why="A server is asked for each file that is opened. A few large files, or a copy on a "
        "local disk, ask it less often.",
        source=_STORAGE,
        judge=_data_on_network,
    ),
    CheckRow(
        code="disk_nearly_full",
        subject="disk",
        title="a disk is nearly full",
        seen=(
            "{folder} ({what})",
            "{free_bytes} free of {total_bytes}",
            "{num_free} files may still be made",
        ),
        why="A checkpoint that does not fit is lost, and often the run with it.",
        source=_STORAGE,
        judge=_disk_full,
    ),
    CheckRow(
        code="data_on_turning_disk",
        subject="disk",
        title="the data lies on a spinning disk",
        seen=("{disk}", "{folder}"),
        why="Reading samples in random order moves its head for each of them.",
        source=_STORAGE,
        judge=_turning_disk,
    ),
)
