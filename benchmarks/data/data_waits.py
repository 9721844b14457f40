"""A store that answers slowly: reads at once, samples kept near, reads beside the step. T9 to T11.

    python benchmarks/data/data_waits.py [--repeats 3]

The store sleeps 20 ms a read (8 ms for T11), so the figures are wall times, and busy neighbors
hardly matter. DataLoader without and with two workers and SPDL with 16 threads read the same store
in the same run. Results go to benchmarks/results/data_waits.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _data_arms import conditions, figure, show

RESULTS = Path(__file__).resolve().parents[1] / "results" / "data_waits.json"
NUM, BATCH, BYTES = 512, 16, 3072
READ_S, OVERLAP_READ_S, STEP_S = 0.020, 0.008, 0.010


class SlowStore:
    """A source whose every sample takes a while, as in an object store."""

    reads_in_flight = 16
    name = "slow store"
    num_bytes = NUM * BYTES

    def __init__(self, read_s: float = READ_S, num: int = NUM) -> None:
        from steptime.data import Column

        self.read_s, self.num = read_s, num
        self.columns = (Column("image", "array", "uint8", (BYTES,)),)
        self.num_reads = 0

    def __len__(self) -> int:
        return self.num

    def read_one(self, index: int) -> np.ndarray[Any, Any]:
        """Return one sample, after the time that the store takes."""
        time.sleep(self.read_s)
        self.num_reads += 1
        return np.full(BYTES, index % 251, dtype=np.uint8)

    def read(self, indices: Any) -> dict[str, Any]:
        """Return samples, one request each."""
        return {"image": np.stack([self.read_one(int(i)) for i in indices])}

    def place_of(self, index: int) -> str:
        """Return where a sample lies."""
        return f"object {index}"

    def close(self) -> None:
        """Nothing is open."""


class MapStyle:
    """The store as a data set of torch's."""

    def __init__(self, store: SlowStore) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self.store.read_one(index)


def dataloader(workers: int, store: SlowStore, **facts: Any) -> Iterator[Any]:
    """Return an epoch of torch's DataLoader."""
    from torch.utils.data import DataLoader

    size = facts.get("batch_size", BATCH)
    data: Any = MapStyle(store)
    return iter(DataLoader(data, batch_size=size, num_workers=workers, shuffle=True))


def spdl(store: SlowStore) -> Iterator[Any]:
    """Return an epoch of SPDL, 16 reads in flight."""
    from spdl.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(np.random.default_rng(0).permutation(len(store)).tolist())
        .pipe(store.read_one, concurrency=16)
        .aggregate(BATCH)
        .pipe(np.stack)
        .add_sink(4)
        .build(num_threads=16)
    )
    with pipeline.auto_stop():
        yield from pipeline


def steptime(store: Any, **facts: Any) -> Iterator[Any]:
    """Return an epoch of ours."""
    from steptime.data import Loader

    return iter(Loader(store, **({"batch_size": BATCH} | facts)))


def timed(epoch: Callable[[], Iterator[Any]], *, step_s: float = 0.0) -> float:
    """Return the wall time of an epoch [s]; each batch is worked on for `step_s`."""
    began, num = time.perf_counter(), 0
    for batch in epoch():
        first = next(iter(batch.values())) if isinstance(batch, dict) else batch
        num += len(first)
        if step_s:
            time.sleep(step_s)
    assert num, "an epoch had no samples"
    return time.perf_counter() - began


def kept_near(folder: Path) -> dict[str, float]:
    """Return the wall time of the second epoch from memory and from a disk, and of the first."""
    from steptime.data import CachedSource

    found = {}
    for name, ram, disk in (("ram", 1 << 30, 0), ("disk", 0, 1 << 30)):
        source = CachedSource(
            SlowStore(), ram_bytes=ram, disk_bytes=disk, folder=str(folder / name)
        )
        found[f"{name}_first_s"] = timed(lambda source=source: steptime(source))  # type: ignore[misc]
        found[f"{name}_second_s"] = timed(lambda source=source: steptime(source))  # type: ignore[misc]
        source.close()
    return found


def run_once(folder: Path) -> dict[str, float]:
    """Return the wall time of each arm [s]."""
    few = dict.fromkeys(("batch_size",), 1)
    overlap = SlowStore(OVERLAP_READ_S, num=50)
    return {
        "dataloader_0_s": timed(lambda: dataloader(0, SlowStore())),
        "dataloader_2_s": timed(lambda: dataloader(2, SlowStore())),
        "spdl_16_s": timed(lambda: spdl(SlowStore())),
        "steptime_s": timed(lambda: steptime(SlowStore())),
        **kept_near(folder),
        "overlap_dataloader_0_s": timed(lambda: dataloader(0, overlap, **few), step_s=STEP_S),
        "overlap_steptime_s": timed(lambda: steptime(overlap, **few, threads=1), step_s=STEP_S),
    }


def main() -> None:
    """Run all arms in turn, print the figures, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-results", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"conditions": conditions(), "repeats": []}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            found["repeats"].append(run_once(Path(folder)))
    middle = {name: median(one[name] for one in found["repeats"]) for name in found["repeats"][0]}
    for name, value in middle.items():
        print(f"{name:28} {value:8.3f} s")
    m = middle
    found["median"] = m
    found["figures"] = [
        figure("T9", m["dataloader_2_s"] / m["steptime_s"], 6, "DataLoader, 2 workers / ours"),
        figure("T9", m["dataloader_0_s"] / m["steptime_s"], 10, "DataLoader, 0 workers / ours"),
        figure(
            "T10",
            m["dataloader_2_s"] / m["ram_second_s"],
            50,
            "DataLoader, 2 workers / our second epoch, memory",
        ),
        figure(
            "T10",
            m["dataloader_2_s"] / m["disk_second_s"],
            50,
            "DataLoader, 2 workers / our second epoch, disk",
        ),
        figure(
            "T11",
            m["overlap_dataloader_0_s"] / m["overlap_steptime_s"],
            1.65,
            "8 ms read and 10 ms step: in a row / ours (1.8 possible)",
        ),
    ]
    show(found["figures"])
    found["conditions"]["load_average_after"] = os.getloadavg()
    if not options.no_results:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
