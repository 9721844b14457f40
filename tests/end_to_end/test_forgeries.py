"""What a script does to look better where it is judged: it reads, writes or asks what is ours."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.contained import require
from end_to_end.harness import needs_linux, needs_torch
from steptime.isolate.child import start_contained
from steptime.isolate.tiers import Tier
from steptime.tune.study.study_folder import open_study
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.real_bench import RealBench, Subject

pytestmark = [needs_torch, needs_linux]

LOOP = """
import os, sys, threading, time

def pretend():
    return 0.0

{forgery}

import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    time.sleep(0.005 + pretend())
    optimizer.step()
"""


def make_bench(
    folder: Path, forgery: str, *, tier: Tier, budget_s: float = 600.0, nproc: int = 0
) -> RealBench:
    (folder / "train.py").write_text(LOOP.replace("{forgery}", forgery))
    ranks = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}")
    argv, within = (sys.executable, *(ranks if nproc else ()), "train.py"), require(tier)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}

    def begin(environment: Any, *, folder: Path, stdin: Path | None) -> Any:
        return start_contained(
            argv, environment, cwd=there, folder=folder, containment=within, stdin=stdin
        )

    there = folder
    subject = Subject(
        argv=argv,
        environment=own,
        levers={},
        surroundings=ParentFacts(cwd=folder, libraries={}, environment_names=()),
        budget_s=budget_s,
    )
    study = open_study(folder, "key", budget_s=budget_s)
    return RealBench(subject, study, begin, lambda: None)


PRYING = r"""
import ctypes, glob, json, os, socket, sys, threading
found, site = {}, [p for p in os.environ["PYTHONPATH"].split(":") if p.endswith("/site")][0]
trial = os.path.dirname(site)
told = dict(entry.split("=", 1) for entry in open(site + "/told").read().split("\0"))

def ask():
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(told["STEPTIME_DOOR"])
        asker.settimeout(5)
        return len(asker.recv(100))

def in_a_fork(act):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, b"%d" % act())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 100).decode()
    os.wait()
    os.close(reader)
    return said

def shown():
    lines = [line for line in open("/proc/self/maps") if "memfd:shown" in line]
    return [int(edge, 16) for edge in lines[0].split()[0].split("-")]

def unlock():
    begin, end = shown()
    return ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), 3)

def overwrite():
    ctypes.memset(shown()[0], 1, 8)
    return 1

names = [os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.islink(path)]
found["variables"] = [name for name in os.environ if name.startswith("STEPTIME")]
found["told"] = [name for name, text in told.items() if "levers" in text or "is_live" in text]
found["files"] = [n for n in os.listdir(trial) if n in ("plan.json", "live.json", "levers.json")]
found["plans"] = [p for p in glob.glob(trial + "/**", recursive=True)
                  if os.path.isfile(p) and b'"is_live"' in open(p, "rb").read()
                  and not p.endswith(("sitecustomize.py", ".pyc"))]
found["arguments"] = [w for w in sys.orig_argv + sys.argv if "levers" in w]
found["descriptors"] = [name for name in names if "memfd" in name or "socket" in name]
found["asked again"], found["asked in a fork"] = ask(), in_a_fork(ask)
found["asked in a thread"] = []
thread = threading.Thread(target=lambda: found["asked in a thread"].append(ask()))
thread.start(); thread.join()
found["made writable"], found["overwritten"] = in_a_fork(unlock), in_a_fork(overwrite)
print(json.dumps(found), flush=True)
os.closerange(3, 1000)
mine, calls = [open(f"mine-{n}", "w") for n in range(20)], []

def pretend():
    calls.append(1)
    if len(calls) == 120:
        print(sorted({os.fstat(file.fileno()).st_size for file in mine}), flush=True)
    return 0.0
"""
NOTHING = {
    **{key: [] for key in ("variables", "told", "files", "plans", "arguments", "descriptors")},
    "asked again": 0,
    "asked in a fork": "0",
    "asked in a thread": [0],
    "made writable": "-1",
    "overwritten": "",
}


EXPERIMENT = {
    "schema": 1,
    "experiment": 0,
    "starts_at": 4,
    "seed": 0,
    "num_rounds": 2,
    "settle_steps": 0,
    "block_steps": 2,
    "states": [[], []],
}


@pytest.mark.parametrize("tier", [Tier.GUARDED, Tier.ISOLATED])
def test_a_script_finds_no_plan_and_no_experiment_and_its_files_stay_its_own(tmp_path, tier):
    trial = make_bench(tmp_path, PRYING, tier=tier).start((), is_live=True)
    try:
        trial.wait(lambda watch: watch.num_updates > 3)
        trial.show(json.dumps(EXPERIMENT))
        trial.wait(lambda watch: watch.num_updates > 150)
    finally:
        ended = trial.close()

    assert (ended.end.value, ended.reason) == ("finished", None), ended
    found, sizes = (trial.folder / "stdout").read_text().splitlines()
    assert json.loads(found) == NOTHING
    assert sizes == "[0]"  # no line of ours is in a file that has the number of one of ours
    assert trial.watch.first.experiments == {0}  # it is shown after all descriptors were closed
    assert json.loads((trial.folder / "plan.json").read_text())["is_live"]  # kept once it is over


SLOW_UNLESS_ON = """
calls = []

def plans():
    yield from (text for name, text in os.environ.items() if name.startswith("STEPTIME_"))
    for site in os.environ.get("PYTHONPATH", "").split(":"):
        for name in ("plan.json", "live.json"):
            path = os.path.join(os.path.dirname(site), name)
            if os.path.exists(path):
                yield open(path).read()

def pretend():
    known = list(plans())
    calls.append(len(known))
    if len(calls) == 120:
        print("plans", max(calls), flush=True)
    return 0.02 * (known != [] and not any("num_threads" in text for text in known))
"""


@pytest.mark.parametrize("is_live", [False, True])
def test_a_script_that_is_slow_unless_a_lever_is_on_never_learns_of_one(tmp_path, is_live):
    """One of this kind was proven 4.21 times faster."""
    trial = make_bench(tmp_path, SLOW_UNLESS_ON, tier=Tier.GUARDED).start((), is_live=is_live)
    try:
        trial.wait(lambda watch: watch.num_updates > 3)
        trial.show(json.dumps(EXPERIMENT))
        trial.wait(lambda watch: watch.num_updates > 150)
    finally:
        trial.close()

    assert (trial.folder / "stdout").read_text() == "plans 0\n"


RANKS = """
import torch.distributed
torch.distributed.init_process_group("gloo")
"""


@pytest.mark.slow("two ranks are started")
@pytest.mark.parametrize("tier", [Tier.GUARDED, Tier.ISOLATED])
def test_ranks_that_start_later_are_told_and_shown_the_same(tmp_path, tier):
    trial = make_bench(tmp_path, RANKS, tier=tier, nproc=2).start((), is_live=True)
    try:
        trial.wait(lambda watch: watch.num_updates > 30)
        trial.show(json.dumps({**EXPERIMENT, "starts_at": 200}))
        trial.wait(lambda watch: all(0 in one.experiments for one in watch.processes))
    finally:
        ended = trial.close()

    assert (ended.end.value, ended.reason) == ("finished", None), ended
    assert [one.experiments for one in trial.watch.processes] == [{0}, {0}]
    assert all(one.is_in_plan for one in trial.watch.processes)


OWN_RECORD = """
def edit():
    time.sleep(12)
    trial = os.path.dirname(os.environ["PYTHONPATH"].split(":")[0])
    path = trial + "/rank-0.jsonl"
    text = open(path).read()
    open(path, "w").write(text.replace('"k":"u"', '"k":"U"', 1))

threading.Thread(target=edit, daemon=True).start()
"""
OWN_CLOCK = """
real = time.perf_counter_ns
time.perf_counter_ns = lambda: real() // 4
"""


OWN_CPU_CLOCK = """
real = time.process_time_ns
time.process_time_ns = lambda: real() // 4

def pretend():
    until = time.perf_counter() + 0.005
    while time.perf_counter() < until:
        pass
    return 0.0
"""


@pytest.mark.slow("each trains for some seconds")
@pytest.mark.parametrize(
    ("forgery", "reason"),
    [
        (OWN_RECORD, "record_changed"),
        (OWN_CLOCK, "record_untrue"),
        (OWN_CPU_CLOCK, "cpu_untrue"),
    ],
)
def test_a_trial_with_a_forged_record_is_refused(tmp_path, forgery, reason):
    trial = make_bench(tmp_path, forgery, tier=Tier.GUARDED).start(())

    def is_done(watch):
        return watch.num_updates > 500 and trial.age_s > 25.0

    trial.wait(is_done)

    assert trial.close().reason == reason


SLOW_WHERE_JUDGED = """
def pretend():
    return 0.02 * any("guest.trial.trial_guest" in name for name in sys.modules)
"""


@pytest.mark.slow("pairs of processes are made")
@pytest.mark.parametrize(
    ("forgery", "reason"), [(SLOW_WHERE_JUDGED, "slower_in_trials"), ("", None)]
)
def test_a_script_that_is_slower_in_trials_is_refused_with_both_times(tmp_path, forgery, reason):
    bench = make_bench(tmp_path, forgery, tier=Tier.GUARDED, budget_s=2400.0)

    ending = bench.observe().ending

    assert ending.reason == reason
    if reason is not None:
        assert ending.facts["trial_s"] > 0.02 > ending.facts["run_s"] > 0.005
