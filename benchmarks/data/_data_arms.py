"""One arm of an input-pipeline benchmark in a process of its own, an epoch each time it is asked.

The processes live through the whole benchmark and are asked in turn, so that a busy neighbor meets
all of them; imports and the first epoch are not counted. CPU time is that of all threads and of
the workers that ended with the epoch.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp

HERE = Path(__file__).resolve().parent
PACKAGES = (
    *("torch", "numpy", "tensorflow-cpu", "litdata", "mosaicml-streaming", "webdataset"),
    *("spdl", "simplejpeg", "pillow", "pyarrow", "nvidia-dali-cuda120"),
)
NOT_MEASURED = {
    "ffcv": "there is no wheel; its source, which needs OpenCV's development files, was not built",
}
"""T14: peers of which no figure is given."""


class ArmProcess:
    """A process that runs epochs of one arm."""

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        self.name = name
        self.found: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "_data_arms.py"), name, kind, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd=HERE,
        )

    def ask(self, word: str) -> dict[str, Any] | None:
        """Return what an epoch cost; None when the process has died."""
        try:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
            while line := self.process.stdout.readline():
                if line.startswith("{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
        except OSError:
            pass
        return None

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def compare(names: list[str], kind: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Return best and median cost of an epoch, by arm, of interleaved repeats."""
    arms = [ArmProcess(name, kind, folder) for name in names]
    failed: dict[str, str] = {}
    try:
        sums = {}
        for one in arms:
            first = one.ask("check")
            if first is None:
                failed[one.name] = "its process ended"
            else:
                sums[one.name] = first["sum"], first["samples"]
        failed |= unlike(sums)
        for turn in range(repeats):
            living = [one for one in arms if one.name not in failed]
            for one in living if turn % 2 == 0 else living[::-1]:
                found = one.ask("go")
                if found is not None:
                    one.found.append(found)
    finally:
        for one in arms:
            one.close()
    result = {one.name: summarize(one.found) for one in arms if one.found}
    for name, (total, samples) in sums.items():
        if name in result:
            result[name] |= {"sum_of_pixels": total, "samples": samples}
    return {"arms": result, "failed": failed}


def unlike(sums: dict[str, tuple[int, int]]) -> dict[str, str]:
    """Return the arms that gave other samples than most; decoders may round otherwise."""
    usual = statistics.median_low([total for total, _ in sums.values()])
    num = statistics.median_low([samples for _, samples in sums.values()])
    return {
        name: f"it gave {samples} samples with a sum of {total}, most gave {num} and {usual}"
        for name, (total, samples) in sums.items()
        if samples != num or abs(total - usual) > 0.02 * usual
    }


def summarize(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return microseconds a sample, the best and the median, of CPU and of wall time."""
    answer: dict[str, Any] = {"n": len(found)}
    for name in ("cpu", "wall"):
        values = sorted(one[f"{name}_s"] / one["samples"] * 1e6 for one in found)
        middle = values[len(values) // 2] if len(values) % 2 else sum(values[_mid(values)]) / 2
        answer |= {f"{name}_us_best": values[0], f"{name}_us_median": middle}
    return answer


def _mid(values: list[float]) -> slice:
    return slice(len(values) // 2 - 1, len(values) // 2 + 1)


def versions() -> dict[str, str | None]:
    """Return the versions of what takes part; None for what is not installed."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def conditions() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "cpu": cpu_name(),
        "num_cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "versions": versions(),
        **stamp(),
        "not_measured": NOT_MEASURED,
    }


def figure(name: str, ratio: float | None, at_least: float, what: str) -> dict[str, Any]:
    """Return one of T1 to T13, and whether it is met; None where an arm is missing."""
    is_met = None if ratio is None else ratio >= at_least
    return {"figure": name, "what": what, "ratio": ratio, "at_least": at_least, "is_met": is_met}


def show(figures: list[dict[str, Any]]) -> None:
    """Print the figures."""
    for one in figures:
        ratio = "not measured" if one["ratio"] is None else f"{one['ratio']:.2f}x"
        word = {True: "met", False: "MISSED", None: "-"}[one["is_met"]]
        bar = f"at most {one['at_most']}" if "at_most" in one else f"at least {one['at_least']}"
        print(f"{one['figure']:4} {one['what']:62} {ratio:>12}  ({bar}) {word}")


def _cpu() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _epoch(make: Any, *, adds: bool) -> dict[str, Any]:
    samples, total = 0, 0
    cpu, began = _cpu(), time.perf_counter()
    for batch in make():
        pixels = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        samples += len(pixels)
        if adds:
            import numpy as np

            total += int(np.asarray(pixels).sum(dtype=np.uint64))
    ended, cpu_ended = time.perf_counter(), _cpu()
    return {
        "samples": samples,
        "sum": total,
        "wall_s": ended - began,
        "cpu_s": cpu_ended - cpu,
    }


def main() -> None:
    """Serve epochs of the arm that was named."""
    import _data_ours  # noqa: F401 - enters its arms
    from _data_rivals import ARMS

    name, kind, folder = sys.argv[1:]
    make = ARMS[name][1](kind, Path(folder))
    for line in sys.stdin:
        print(json.dumps(_epoch(make, adds=line.strip() == "check")), flush=True)


if __name__ == "__main__":
    main()
