"""What the walls around a trial hold, and what they cost.

    python benchmarks/verify/containment.py [--rounds 9]
    python benchmarks/verify/containment.py --harms

Of the costs, each snippet runs in turns without walls, isolated and guarded; printed is the least
and the median. With `--harms`, a child tries to do harm in each way that `_harms.py` has, one child
for each attempt, in each tier: as the user who calls, and, for root, as an ordinary user (65534)
and as one who may make no user namespace, as in most containers; the guarded tier also with the
Landlock of Linux 5.13. Printed is what each attempt changed outside, looked at from outside.
Without walls nearly all of them must change something, or
they would show nothing. Results go to benchmarks/results/containment.json.
Works in a temporary folder of the current disk, or of /tmp for `--harms`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from _outside import HARMS, HELD, UNSEEN, Outside

from steptime.errors import ContainmentError
from steptime.isolate.child import ContainedChild, start_contained
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment, Tier

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from _conditions import stamp

from end_to_end.old_landlock import with_old_landlock

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


HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
RESULTS = BENCHMARKS / "results" / "containment.json"
WITHOUT_NAMESPACES = (
    BENCHMARKS.parent / "tests" / "end_to_end" / "scripts" / "without_namespaces.py"
)
ACCOUNTS = ("the caller", "an ordinary user", "an ordinary user without user namespaces")
OLD_KERNEL = ", with the Landlock of Linux 5.13"
NO_WALLS = "no walls"

Seen = dict[str, dict[str, object]]
"""Of each attempt: what the child says, and what changed outside."""


def count_harms() -> None:
    """Try each account in a process of its own, print a table, and save it."""
    found: dict[str, dict[str, Seen]] = {}
    ours = BENCHMARKS.parent / "src"
    with tempfile.TemporaryDirectory(prefix="old-", dir="/tmp") as place:
        old = with_old_landlock(ours / "steptime", Path(place))
        for account in ACCOUNTS if os.geteuid() == 0 else ACCOUNTS[:1]:
            for source, kernel in ((ours, ""), (old, OLD_KERNEL)):
                found[account + kernel] = ask_account(account, kernel, source)
                print_table(account + kernel, found[account + kernel])
    machine = {"platform": platform.platform(), "python": platform.python_version()}
    accounts = {
        account: {name: sum_up(seen) for name, seen in of.items()} for account, of in found.items()
    }
    document = {**stamp(), "machine": machine, "command": "--harms", "accounts": accounts}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


def ask_account(account: str, kernel: str, source: Path) -> dict[str, Seen]:
    """Every attempt, with the package of this source, in a process of this user."""
    python = sys.executable if account == ACCOUNTS[0] else python_for_others()
    search = (str(source), *(place for place in sys.path[1:] if place))
    command = [*prefix_of(account, python), python, str(HERE / "containment.py")]
    done = subprocess.run(
        [*command, "--account", account + kernel],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search), "HOME": "/tmp"},
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Seen] = json.loads(done.stdout.splitlines()[-1])
    return found


def sum_up(seen: Seen) -> dict[str, Any]:
    """How many attempts there were, and what those that came through changed."""
    return {
        "attempts": len(seen),
        "through": {name: one["changed"] for name, one in seen.items() if one["changed"]},
    }


def prefix_of(account: str, python: str) -> list[str]:
    """What makes a command that of another user."""
    if account == ACCOUNTS[0]:
        return []
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return drop if account == ACCOUNTS[1] else [*drop, python, str(WITHOUT_NAMESPACES)]


def python_for_others() -> str:
    """This Python, or the system's of the same version where others may not reach this one."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    here = Path(sys.executable).resolve()
    is_open = all(folder.stat().st_mode & 0o001 for folder in here.parents)
    return sys.executable if is_open else f"/usr/bin/{version}"


def try_account(account: str) -> dict[str, Seen]:
    """Every attempt in every tier, as the user of this process."""
    place = Path(tempfile.mkdtemp(prefix="harms-"))
    try:
        found = {}
        for name, within in harm_tiers(place, account).items():
            found[name] = try_tier(place / name.replace(" ", "-"), within)
        return found
    finally:
        shutil.rmtree(place)


def harm_tiers(place: Path, account: str) -> dict[str, Containment]:
    is_old = account.endswith(OLD_KERNEL)
    without = account != ACCOUNTS[0] and not is_old
    found = {NO_WALLS: Containment(tier=Tier.UNSAFE)} if without else {}
    for tier in (Tier.GUARDED,) if is_old else (Tier.ISOLATED, Tier.GUARDED):
        try:
            within = probe(place, best=tier)
        except ContainmentError:
            continue
        if within.tier is tier:
            found[tier.value] = within
            if tier is Tier.GUARDED and within.has_own_network:
                walled = replace(within, has_own_network=False)
                found["guarded, no namespaces"] = walled
            if within.has_own_processes:
                shared = replace(within, has_own_processes=False, has_own_network=False)
                found["isolated, files alone"] = shared
    return found


def try_tier(there: Path, within: Containment) -> Seen:
    (there / "outside").mkdir(parents=True)
    outside = Outside(there / "outside")
    seen: Seen = {}
    try:
        for number, name in enumerate(attempt_names()):
            folder = there / f"trial-{number}"
            folder.mkdir()
            seen[name] = try_once(name, folder, outside, within)
    finally:
        outside.close()
    return seen


def try_once(name: str, folder: Path, outside: Outside, within: Containment) -> dict[str, object]:
    stays = name in HELD
    facts = outside.facts(folder / "go", only=name, stays_s=10.0 if stays else 0.0)
    child = start_contained(
        (sys.executable, str(HARMS), facts),
        dict(os.environ),
        cwd=folder,
        folder=folder,
        containment=within,
    )
    assert isinstance(child, ContainedChild)
    changed = []
    if stays:
        while child.poll() is None and not (folder / "stdout").read_text():
            time.sleep(0.02)
        changed = outside.held()
        (folder / "go").touch()
    end = child.wait(60)
    child.kill()
    text = (folder / "stdout").read_text()
    said = json.loads(text)[name] if text else f"ended by {end}"
    if name in UNSEEN and said == DONE:
        changed.append("let through")
    said = said.replace(str(outside.folder), "HERE")
    return {"said": said, "changed": [*changed, *outside.changes()]}


DONE = "done"


def attempt_names() -> list[str]:
    facts = json.dumps({"only": "list"})
    code = "import _harms; print('\\n'.join(f'{k}: {w}' for k, w, _ in _harms.ATTEMPTS))"
    done = subprocess.run(
        [sys.executable, "-c", code, facts],
        cwd=HERE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def print_table(account: str, found: dict[str, Seen]) -> None:
    print(f"\nas {account}: what got through")
    names = list(found)
    print(f"{'':44} " + "  ".join(f"{name:22}" for name in names))
    for attempt in next(iter(found.values())):
        cells = []
        for name in names:
            one = found[name][attempt]
            cells.append("THROUGH" if one["changed"] else "-")
        print(f"{attempt:44} " + "  ".join(f"{cell:22}" for cell in cells))
    num_through = {n: sum(bool(one["changed"]) for one in found[n].values()) for n in names}
    totals = [f"{num} of {len(found[name])}" for name, num in num_through.items()]
    print(f"{'in all':44} " + "  ".join(f"{total:22}" for total in totals), flush=True)


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
    parser.add_argument("--harms", action="store_true", help="count what gets through")
    parser.add_argument("--account", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.account is not None:
        print(json.dumps(try_account(asked.account)))
        return
    if asked.harms:
        count_harms()
        return
    rounds = asked.rounds
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
