"""What a sample costs by format and loader, beside the other formats' own loaders: T1 to T8.

    python benchmarks/data/data_formats.py [--repeats 3] [--folder DIR] [--kinds ab]

Needs an environment with all rivals: torch, tensorflow-cpu, litdata, mosaicml-streaming,
webdataset, spdl, Pillow, simplejpeg, pyarrow, and nvidia-dali-cuda120, which runs on a CPU where
its libnvimgcodec is on LD_LIBRARY_PATH. Small records (A) and JPEGs (B) are made, written in
each format by its own writer, and read in interleaved repeats; pages are in memory. The figure is
CPU time a sample, which neighbors disturb least. Results go to
benchmarks/results/data_formats.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import _data_ours  # noqa: F401 - enters its arms
from _data_arms import compare, conditions, figure, show
from _data_rivals import ARMS
from _data_sets import WRITERS

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
RESULTS = BENCHMARKS / "results" / "data_formats.json"
DALI = "JPEG kept: DALI's folder reader and decoder on the CPU / ours with simplejpeg"


def write_all(kind: str, folder: Path) -> dict[str, Any]:
    """Write the formats that are not there yet; return what each writer cost."""
    found = {}
    made = {"DATA_MADE": str(folder / "files")} if kind == "b" else {}
    for name in WRITERS:
        if not (folder / name).exists():
            environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
            found[name] = _write(name, kind, folder, environment | (made if found else {}))
    return found


def _write(name: str, kind: str, folder: Path, environment: Any) -> Any:
    command = [sys.executable, str(HERE / "_data_sets.py"), name, kind, str(folder / name)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=HERE
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"failed": done.stderr[-500:]}


def predicts_gain(folder: Path) -> dict[str, Any]:
    """Ask `data convert` what it predicts for JPEG kept as JPEG; it must advise against it."""
    command = [sys.executable, "-m", "steptime", "data", "convert", "--dry-run"]
    places = [str(folder / "files"), str(folder / "jpeg-kept")]
    done = subprocess.run([*command, *places], capture_output=True, text=True, check=False)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    gains = [line for line in lines if line.startswith("gain ")]
    return {"gain": gains[0] if gains else None, "is_refused": "Not converted" in done.stdout}


def sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each format."""
    from _data_sets import size_of

    return {path.name: size_of(path) for path in sorted(folder.iterdir()) if path.is_dir()}


def figures(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return T1 to T8 of what was measured, by the median of CPU time."""

    def cost(kind: str, name: str) -> float | None:
        arms = found.get(kind, {}).get("arms", {})
        return arms[name]["cpu_us_median"] if name in arms else None

    def ratio(kind: str, rival: str, ours: str = "steptime_prepared") -> float | None:
        theirs, own = cost(kind, rival), cost(kind, ours)
        return None if theirs is None or own is None else theirs / own

    pillow = [
        value
        for name in ("files_dataloader_0", "webdataset_0", "mds_0", "litdata_0", "spdl_threads_2")
        if (value := cost("b", name)) is not None
    ]
    rows = [
        figure("T1", ratio("a", "files_dataloader_0"), 15, "loose files + DataLoader / ours"),
        figure("T2", ratio("a", "litdata_0"), 6, "LitData / ours"),
        figure("T3", ratio("a", "tfdata_batch_parsed"), 8, "tf.data, whole batches parsed / ours"),
        figure("T3", ratio("a", "tfdata_record"), 25, "tf.data, record by record / ours"),
        figure("T4", ratio("a", "mds_0"), 40, "MDS / ours"),
        figure("T5", ratio("a", "webdataset_0"), 100, "WebDataset / ours"),
        figure("T6", ratio("a", "mapped_dataloader_0"), 5, "mapped array, sample by sample / ours"),
        figure("T8", ratio("b", "files_dataloader_0"), 10, "JPEG files / ours stored decoded"),
    ]
    rows.append(_size(found))
    best, own = min(pillow, default=None), cost("b", "steptime_jpeg_pillow")
    both = best is not None and own is not None
    pictures = "JPEG kept, Pillow: best of the others / ours"
    row = figure("T7", best / own if both else None, 0.95, pictures)  # type: ignore[operator]
    simple, theirs = cost("b", "steptime_jpeg_simplejpeg"), cost("b", "tfdata_record")
    decoders = "JPEG kept: ours with simplejpeg / tf.data's decoder"
    quick = None if simple is None or theirs is None else simple / theirs
    dali = figure("T14", ratio("b", "dali_threads_1", "steptime_jpeg_simplejpeg"), 1, DALI)
    return [*rows, row, at_most("T7", quick, 1.0, decoders), dali]


def at_most(name: str, ratio: float | None, bar: float, what: str) -> dict[str, Any]:
    """Return a figure that may not be larger than a bar."""
    is_met = None if ratio is None else ratio <= bar
    return {"figure": name, "what": what, "ratio": ratio, "at_most": bar, "is_met": is_met}


def _size(found: dict[str, Any]) -> dict[str, Any]:
    bytes_of = found.get("a", {}).get("bytes", {})
    names = ("prepared", "tar")
    ratio = None
    if all(name in bytes_of for name in names):
        ratio = bytes_of["prepared"] / bytes_of["tar"]
    return at_most("T5", ratio, 0.5, "size of ours / size of the tar")


def main() -> None:
    """Make the data, run all arms, print the figures, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the data is kept for another run")
    parser.add_argument("--kinds", default="ab")
    parser.add_argument("--only", nargs="*", help="names of arms")
    parser.add_argument("--no-results", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        base = options.folder or Path(temporary)
        found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for kind in options.kinds:
            folder = base / kind
            folder.mkdir(parents=True, exist_ok=True)
            writers, load = write_all(kind, folder), os.getloadavg()
            names = [n for n, (kinds, _) in ARMS.items() if kind in kinds]
            names = [n for n in names if not options.only or n in options.only]
            found[kind] = compare(names, kind, folder, options.repeats)
            found[kind] |= {"bytes": sizes(folder), "writers": writers}
            found[kind] |= {"conditions": conditions() | {"load_average_before": load}}
            if kind == "b":
                found[kind]["prediction"] = predicts_gain(folder)
                print("JPEG kept as JPEG, predicted:", found[kind]["prediction"])
            for name, one in found[kind]["arms"].items():
                print(f"{kind} {name:28} {one['cpu_us_median']:9.2f} us CPU a sample", flush=True)
            for name, why in found[kind]["failed"].items():
                print(f"{kind} {name:28} failed: {why}")
    found["figures"] = figures(found)
    show(found["figures"])
    if not options.no_results:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
