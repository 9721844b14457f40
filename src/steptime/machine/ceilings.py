"""The ceilings: measured by another process, and kept under the machine's fingerprint.

In: an interpreter, the inventory, a budget, a store. Out: `Ceilings`, complete or with the reason
why not. The measuring code is in `child` and runs in the user's Python; `ceiling_state` says which
of them are provisional, and `retake` takes those again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steptime.core.codec import decode, encode, from_json, to_json
from steptime.core.devices.machine_condition import MachineCondition, find_changes
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.executable import NotStarted, find_executable
from steptime.core.stats import median_interval
from steptime.core.store import write_text
from steptime.errors import DamagedRunError, NotFoundError
from steptime.machine.ceiling_state import judge
from steptime.machine.child_process import ChildEnd, Line, run_child
from steptime.machine.values.ceiling_values import BenchProcess, Ceiling, Ceilings, Setting
from steptime.machine.values.inventory_values import Inventory
from steptime.record.regular_file import read_regular

VERSION = 1
"""The version of what is measured and how; figures of another version are measured again."""

UNKNOWN_CACHE_BYTES = 64 << 20
"""Used where the caches are unknown: more than most processors that torch runs on have."""

MEMORY_SHARE = 1 / 16
"""Of the available memory, for one set of arrays: six sets exist at once, four of half the size."""
PROBE_S = 20.0  # a Python on a cold network disk starts slowly
GRACE_S = 6.0  # from the end of the budget until the process is killed

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Bindings left over in a shell would keep all threads on the cores of another job.
_BINDINGS = (
    *("OMP_PROC_BIND", "OMP_PLACES", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "GOMP_CPU_AFFINITY"),
    *("KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT", "MKL_DYNAMIC"),
)
WAIT_POLICY = "passive"
"""Waiting threads sleep: on a shared machine, spinning threads slow each other down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """An interpreter, as it describes itself; `missing` is why it cannot measure.

    `path` may be a script around the interpreter; `executable` is the interpreter itself.
    """

    path: str
    executable: str | None = None
    version: str | None = None
    torch_version: str | None = None
    missing: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRequest:
    """What to measure with, on what, and for how long.

    Attributes:
        folder: of the store, for the disk's file and the result; None if it cannot be written.
        is_launched: this process is one of several that a launcher started.
        condition: the state of the machine now.
    """

    python: Python
    inventory: Inventory
    fingerprint: str
    budget_s: float
    folder: Path | None
    is_launched: bool = False
    condition: MachineCondition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How far the measuring is: what is measured now or was just measured, and the time left."""

    left_s: float
    device: str | None = None
    name: str | None = None
    ceiling: Ceiling | None = None


@dataclass(slots=True)
class _Heard:
    """What the process has said so far."""

    bench: BenchProcess | None = None
    ceilings: list[Ceiling] = field(default_factory=list)
    missing: str | None = None
    detail: str | None = None
    is_whole: bool = False


def find_python(name: str | None, environment: Mapping[str, str]) -> str:
    """Return the interpreter of that name, or the one on the PATH.

    Raises:
        NotFoundError: there is none.
    """
    for word in ("python", "python3") if name is None else (name,):
        found = find_executable(word, environment)
        if not isinstance(found, NotStarted):
            return found
    if name is None:
        raise NotFoundError("there is no `python` on the PATH.", hint="Name one: --python PATH")
    raise NotFoundError(f"--python: `{name}` was not found.", hint="Name an interpreter's file.")


def ask_python(path: str, *, environment: Mapping[str, str]) -> Python:
    """Return what an interpreter is and which torch it has; torch is not imported."""
    found: list[Python] = []

    def hear(line: Line) -> None:
        if line.get("k") == "missing":
            found.append(
                Python(path=path, missing=line["missing"], detail=line.get("detail") or None)
            )
        elif line.get("k") == "python":
            version, torch = line["python_version"], line.get("torch_version")
            missing = "no_torch" if torch is None else None
            found.append(
                Python(
                    path=path,
                    executable=line["python"],
                    version=version,
                    torch_version=torch,
                    missing=missing,
                )
            )

    with tempfile.TemporaryDirectory(prefix="steptime-machine-") as folder:
        try:
            ended = run_child(
                path,
                {"role": "probe"},
                folder=Path(folder),
                environment=environment,
                limit_s=PROBE_S,
                on_line=hear,
            )
        except OSError as error:
            return Python(path=path, missing="not_started", detail=str(error))
    if found:
        return found[0]
    return Python(path=path, missing="no_answer", detail=ended.last_words or None)


def fingerprint_of(machine: MachineIdentity, inventory: Inventory, python: Python) -> str:
    """Return a hash of what the figures depend on: machine, limits, devices, file system."""
    mount = inventory.data.mount
    facts = [
        VERSION,
        to_json(machine),
        to_json(replace(inventory.cpu, flags=(), caches=())),
        inventory.limits.cpu_quota_cores,
        [(gpu.uuid, gpu.name, gpu.bus_id) for gpu in inventory.gpus],
        inventory.nvidia_driver,
        None if mount is None else (mount.folder, mount.kind, mount.source),
        (python.executable or python.path, python.version, python.torch_version),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def load(asked: CeilingRequest) -> Ceilings | None:
    """Return figures of this machine from before, if they had at least as much time."""
    if asked.folder is None:
        return None
    path = asked.folder / f"{asked.fingerprint}.json"
    try:
        found = decode(Ceilings, read_regular(path), where=path.name)
    except (OSError, DamagedRunError):
        return None
    is_whole = not found.is_partial or found.missing == "out_of_time"
    is_enough = is_whole and found.budget_s >= asked.budget_s
    before, now = found.condition, asked.condition
    is_same = before is None or now is None or not find_changes(before, now)
    if not is_enough or not is_same or found.fingerprint != asked.fingerprint:
        return None
    return judge(found)


def unmeasured(asked: CeilingRequest, *, now_s: float) -> Ceilings:
    """Return ceilings without figures, and why: the interpreter cannot measure."""
    return Ceilings(
        fingerprint=asked.fingerprint,
        measured_unix_s=now_s,
        took_s=0.0,
        budget_s=asked.budget_s,
        is_partial=True,
        missing=asked.python.missing,
        detail=asked.python.detail or asked.python.path,
    )


def keep(ceilings: Ceilings, asked: CeilingRequest) -> None:
    """Write the figures into the store; it is no failure if the store cannot be written."""
    if asked.folder is not None:
        with suppress(OSError):
            path = asked.folder / f"{asked.fingerprint}.json"
            write_text(path, encode(ceilings) + "\n")


def measure(
    asked: CeilingRequest,
    *,
    environment: Mapping[str, str],
    tell: Callable[[Told], None],
    now_s: Callable[[], float] = time.time,
) -> Ceilings:
    """Measure until everything is done, the budget is spent, or Ctrl-C; keep what is known then.

    Args:
        asked: with what, on what, and for how long.
        environment: of this process; its thread variables are replaced.
        tell: called with how far it is.
        now_s: the time of day.
    """
    began_s, heard = time.monotonic(), _Heard()
    started_unix_s = now_s()

    def left_s() -> float:
        return max(0.0, asked.budget_s - (time.monotonic() - began_s))

    def hear(line: Line) -> None:
        _take(line, heard)
        if line.get("k") == "stage":
            tell(Told(left_s=left_s(), device=line["device"], name=line["name"]))
        elif line.get("k") == "ceiling":
            tell(Told(left_s=left_s(), ceiling=heard.ceilings[-1]))

    ended: ChildEnd | None = None
    temporary = tempfile.TemporaryDirectory(prefix="steptime-machine-")
    with temporary as folder, suppress(KeyboardInterrupt):
        ended = run_child(
            asked.python.path,
            _request(asked, folder),
            folder=Path(folder),
            environment=_environment(environment, asked.inventory.cpu.num_usable),
            limit_s=asked.budget_s + GRACE_S,
            on_line=hear,
            tick=lambda: tell(Told(left_s=left_s())),
        )
    missing, detail = _why(heard, ended)
    found = Ceilings(
        fingerprint=asked.fingerprint,
        measured_unix_s=started_unix_s,
        took_s=round(time.monotonic() - began_s, 3),
        budget_s=asked.budget_s,
        bench=heard.bench,
        ceilings=tuple(_beside_others(one, asked.inventory) for one in heard.ceilings),
        is_partial=not heard.is_whole,
        missing=missing,
        detail=detail,
        condition=asked.condition,
    )
    return judge(found)


def _beside_others(one: Ceiling, inventory: Inventory) -> Ceiling:
    """Return a GPU's ceiling with how busy the GPUs were before anything of ours ran on them."""
    busy = [gpu.busy_fraction for gpu in inventory.gpus if gpu.busy_fraction is not None]
    if not one.device.startswith("cuda") or not busy:
        return one
    return replace(one, state=replace(one.state, device_busy_fraction=max(busy)))


def _why(heard: _Heard, ended: ChildEnd | None) -> tuple[str | None, str | None]:
    """Return why it is incomplete: a machine word, and the message of what failed."""
    if heard.is_whole or heard.missing is not None:
        return heard.missing, heard.detail
    if ended is None:
        return "interrupted", None
    if ended.is_late:
        return "out_of_time", None
    return "bench_failed", ended.last_words or f"exit code {ended.exit_code}"


def _request(asked: CeilingRequest, folder: str) -> dict[str, Any]:
    cpu, ram, limits = asked.inventory.cpu, asked.inventory.ram, asked.inventory.limits
    mount = asked.inventory.data.mount
    last = max((cache.level for cache in cpu.caches), default=0)
    cache_bytes = sum(c.size_bytes * c.num for c in cpu.caches if c.level == last)
    known = [ram.available_bytes, limits.memory_bytes and limits.memory_bytes // 2]
    available = min((size for size in known if size), default=1 << 30)
    return {
        "role": "bench",
        "left_s": asked.budget_s,
        "num_threads": cpu.num_usable,
        "cache_bytes": cache_bytes or UNKNOWN_CACHE_BYTES,
        "limit_bytes": int(MEMORY_SHARE * available),
        "store": None if asked.folder is None else str(asked.folder),
        "data": asked.inventory.data.folder,
        "in_memory": mount is not None and mount.kind in ("tmpfs", "ramfs"),
        "folder": folder,
        "is_launched": asked.is_launched,
    }


def _environment(environment: Mapping[str, str], num_threads: int) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in _BINDINGS}
    return {**kept, **dict.fromkeys(_THREADS, str(num_threads)), "OMP_WAIT_POLICY": WAIT_POLICY}


# -- what it says


def _take(line: Line, heard: _Heard) -> None:
    kind = line.get("k")
    if kind == "head":
        with suppress(DamagedRunError):
            heard.bench = from_json(BenchProcess, line)
    elif kind == "ceiling":
        heard.ceilings.append(read_ceiling(line))
    elif kind == "missing":
        heard.missing, heard.detail = line["missing"], line.get("detail") or None
    elif kind == "out_of_time":
        heard.missing = "out_of_time"
    elif kind == "end":
        heard.is_whole = heard.missing is None


def read_ceiling(line: Line) -> Ceiling:
    """Return the value of a line: its repetitions become a median with its interval."""
    rates = [float(rate) for rate in line.get("rates") or ()]
    setting = line.get("setting")
    found = from_json(Ceiling, {**line, "setting": None, "points": line.get("points") or []})
    if not rates:
        return replace(found, missing=found.missing or "no_repetitions")
    return replace(
        found,
        rate=median_interval(rates),
        best_rate=max(rates),
        setting=None if setting is None else from_json(Setting, setting),
    )


def join_ranks(python: Python, *, budget_s: float, environment: Mapping[str, str]) -> str | None:
    """Be one rank of a launcher in the collectives; return why not, if that failed.

    The first rank measures everything else and has the results.
    """
    heard = _Heard()
    request = {"role": "join", "left_s": budget_s, "num_threads": 1}
    with tempfile.TemporaryDirectory(prefix="steptime-machine-") as folder:
        ended = run_child(
            python.path,
            request,
            folder=Path(folder),
            environment=environment,
            limit_s=budget_s + GRACE_S,
            on_line=lambda line: _take(line, heard),
        )
    missing, detail = _why(heard, ended)
    return None if missing is None else f"{missing}: {detail or ''}".rstrip(": ")
