"""Whether an epoch that is killed again and again has every sample once.

    python benchmarks/data/data_epoch_kills.py [--kills 50] [--samples 6000]

A child reads epochs and writes every few batches, at once, the loader's state and the numbers of
the samples since the epoch's beginning. It is killed (SIGKILL) at random moments and started again
from what it wrote last, each time with another number of ranks, threads and samples a batch.
Samples are kept on a disk tier, which the kills hit as well. An epoch is exact if each number
stands in it once; each sample's bytes are checked too. Results go to
benchmarks/results/data_epoch_kills.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steptime.data import CachedSource, Column, Loader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "data_epoch_kills.json"
WIDTH = 2000
PAUSE_S = 0.002  # of a step, so that an epoch takes long enough to be killed in


def content(number: int) -> bytes:
    return number.to_bytes(4, "little") * (WIDTH // 4)


class Numbered:
    """Samples whose bytes follow from their numbers."""

    name, num_bytes, reads_in_flight = "numbered", None, 1
    columns = (Column("data", "bytes"), Column("number", "number", "int64", ()))

    def __init__(self, num: int) -> None:
        self.num = num

    def __len__(self) -> int:
        return self.num

    def read(self, indices: Sequence[int]) -> Mapping[str, Any]:
        numbers = np.asarray(indices, dtype=np.int64)
        return {"data": [content(int(number)) for number in numbers], "number": numbers}

    def place_of(self, index: int) -> str:
        return f"number {index}"

    def close(self) -> None:
        pass


def read_epochs(folder: Path, num: int, setting: Mapping[str, int]) -> None:
    """The child: go on from what was written last, until somebody ends it."""
    source = CachedSource(Numbered(num), disk_bytes=num * WIDTH // 2, folder=folder / "tier")
    ranks = [
        Loader(source, setting["batch_size"], seed=1, threads=setting["threads"], rank=rank,
               world_size=setting["ranks"])
        for rank in range(setting["ranks"])
    ]  # fmt: skip
    saved = json.loads((folder / "state.json").read_text())
    seen, wrong = saved["seen"], saved["wrong"]
    for loader in ranks:
        loader.load_state_dict(saved["state"] or ranks[0].state_dict())
    while True:
        epoch = ranks[0].epoch
        for step, batches in enumerate(zip(*ranks, strict=True)):
            for batch in batches:
                numbers = batch["number"].tolist()
                seen += numbers
                pairs = zip(batch["data"], numbers, strict=True)
                wrong += sum(bytes(data) != content(number) for data, number in pairs)
            time.sleep(PAUSE_S)
            if step % 3 == 0:
                save(folder, ranks[0].state_dict(), seen, wrong)
        with (folder / f"epoch-{epoch}.new").open("w") as file:
            json.dump(seen, file)
        os.replace(folder / f"epoch-{epoch}.new", folder / f"epoch-{epoch}.json")
        seen = []
        save(folder, ranks[0].state_dict(), seen, wrong)


def save(folder: Path, state: Mapping[str, Any], seen: Sequence[int], wrong: int) -> None:
    new = folder / "state.new"
    new.write_text(json.dumps({"state": state, "seen": seen, "wrong": wrong}))
    os.replace(new, folder / "state.json")


def kill_once(folder: Path, num: int, chance: random.Random) -> dict[str, Any]:
    """Start the child, kill it at a random moment of its reading; return where."""
    setting = {
        "ranks": chance.choice((1, 2, 3)),
        "threads": chance.choice((0, 1, 4)),
        "batch_size": chance.choice((7, 16, 32)),
    }
    before = (folder / "state.json").read_bytes()
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", folder, "--samples", str(num), json.dumps(setting)]
    )
    while (folder / "state.json").read_bytes() == before and child.poll() is None:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.5))
    child.send_signal(signal.SIGKILL)
    code = child.wait()
    state = json.loads((folder / "state.json").read_text())["state"]
    return {**setting, "epoch": state["epoch"], "position": state["position"], "code": code}


def judge(folder: Path, num: int, kills: list[dict[str, Any]]) -> dict[str, Any]:
    files = sorted(folder.glob("epoch-*.json"))
    counts = [Counter(json.loads(file.read_text())) for file in files]
    return {
        "kills": len(kills),
        "kills_in_the_middle": sum(0 < kill["position"] < num for kill in kills),
        "ended_otherwise": sum(kill["code"] != -signal.SIGKILL for kill in kills),
        "epochs": len(counts),
        "lost": sum(len(set(range(num)) - set(count)) for count in counts),
        "twice": sum(times - 1 for count in counts for times in count.values()),
        "wrong": json.loads((folder / "state.json").read_text())["wrong"],
        "samples": num,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("setting", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        read_epochs(options.child, options.samples, json.loads(options.setting))
    chance = random.Random(17)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "state.json").write_text('{"state": null, "seen": [], "wrong": 0}')
        kills = [kill_once(folder, options.samples, chance) for _ in range(options.kills)]
        result = judge(folder, options.samples, kills)
    print(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in result.items()))
    result = {**stamp(), **result, "python": platform.python_version()}
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    names = ("lost", "twice", "wrong", "ended_otherwise")
    sys.exit(any(result[name] for name in names))


if __name__ == "__main__":
    main()
