"""What the walls around a trial cost: to make them, and the script behind them.

    python benchmarks/containment.py [--rounds 9]

Each snippet runs in turns without walls, isolated and guarded; printed is the least and the
median. Works in a temporary folder of the current disk.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

from steptime.errors import ContainmentError
from steptime.isolate.child import ContainedChild, start_contained
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment, Tier

# Each prints a time [µs] a call, five times over.
_LOOP = """
import os, time
for _ in range(5):
    began = time.perf_counter()
    for number in range(200):
        {call}
    print((time.perf_counter() - began) / 200 * 1e6)
"""
SNIPPETS = {
    "open and read": _LOOP.format(call="open(f'old-{number}').read()"),
    "os.stat": _LOOP.format(call="os.stat(f'old-{number}')"),
    "write a new file": _LOOP.format(call="open(f'new-{number}', 'w').write('x')"),
}


def run(code: str, there: Path, within: Containment) -> tuple[float, float]:
    """Time until the command ran [ms], and the least time that it printed [µs]."""
    folder = there / "trial"
    began = time.perf_counter()
    child = start_contained(
        (sys.executable, "-c", code),
        dict(os.environ),
        cwd=there,
        folder=folder,
        containment=within,
    )
    start_ms = (time.perf_counter() - began) * 1e3
    assert isinstance(child, ContainedChild)
    end = child.wait(120)
    assert end is not None
    assert end.exit_code == 0, (folder / "stderr").read_text()
    return start_ms, min(map(float, (folder / "stdout").read_text().split()))


def tiers(there: Path, rounds: int) -> dict[str, Containment]:
    """What works here; prints what trying it costs."""
    found = {"no walls": Containment(tier=Tier.UNSAFE)}
    for tier in (Tier.ISOLATED, Tier.GUARDED):
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            try:
                within = probe(there, best=tier)
            except ContainmentError as error:
                print(f"{tier.value}: not here: {error}")
                break
            times.append((time.perf_counter() - began) * 1e3)
        else:
            found[tier.value] = within
            show(f"try the tier [ms], {tier.value}", times)
    return found


def show(what: str, values: list[float]) -> None:
    print(f"{what:40} {min(values):8.1f} ({statistics.median(values):.1f}), n={len(values)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores,")
    print(f"load {os.getloadavg()[0]:.1f}; least (median)")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        there = Path(folder).resolve()
        (there / "trial").mkdir()
        for number in range(200):
            (there / f"old-{number}").write_text("x" * 1000)
        found = tiers(there, rounds)
        starts: dict[str, list[float]] = {name: [] for name in found}
        for snippet, code in SNIPPETS.items():
            times: dict[str, list[float]] = {name: [] for name in found}
            for _ in range(rounds):
                for name, within in found.items():
                    start_ms, call_us = run(code, there, within)
                    starts[name].append(start_ms)
                    times[name].append(call_us)
            for name, values in times.items():
                show(f"{snippet} [µs], {name}", values)
        for name, values in starts.items():
            show(f"until the command runs [ms], {name}", values)


if __name__ == "__main__":
    main()
