"""Public scripts that the search has not seen: as written, tuned in ten minutes, and by an expert.

    python benchmarks/tune/corpus.py --root DIR [--half unseen] [--places 01 03] [--table]
    python benchmarks/tune/corpus.py --root DIR --whole [--places 01 03] [--rounds 2]

The scripts, the rule that chose them and what the expert changed stand in benchmarks/corpus.toml.
DIR holds a folder a place: `script` (the checkout), `expert` (the same, edited), `env` (the
environment that runs both). Of each place, `steptime tune` has ten minutes; then the arms run in
turns under a clock from outside (`clock/`, each optimizer step), without Steptime but for the
recipe. A round is each of them once, for so many seconds of steps. Of the steps that all of them
made, the first half does not count: within some 20 s `run --recipe` makes all of its looks, which
a run of hours has once, too. The expert's runs with either number of threads, and the better one
counts. Told are ratios of the loop's time per step with the spread of the rounds. What is done is
in benchmarks/results/corpus.json (corpus_busy.json with --busy) and is not done again at the same
commit; a study that was cut goes on.

`--whole` holds the forecast of a whole command against a stopwatch: of a place that has a recipe,
`whole_command` (the command itself where it ends soon) runs to its end as written and with the
recipe, in turns, and each mean should lie in the interval that the study's own parts forecast for
`whole_updates` steps. That goes to benchmarks/results/corpus_whole.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import tomllib

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions, interval, stamp

PLACES = tomllib.loads((BENCHMARKS / "corpus.toml").read_text())["places"]
HALVES = ("worked with", "unseen")
RESULTS = BENCHMARKS / "results" / "corpus.json"
DATA = BENCHMARKS.parents[1] / "shared" / "data"
CLOCK = Path(__file__).resolve().parent / "clock"
UNCOUNTED = 0.5
"""Of the steps that all arms of a round made: what an epoch ends with is then in all or in none."""


def main() -> None:
    """Do what is not done yet, place by place, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--half", choices=HALVES, default=HALVES[0])
    parser.add_argument("--places", nargs="+", default=[])
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=45, help="of steps, an arm and round")
    parser.add_argument("--limit", type=float, default=240, help="of an arm with its start [s]")
    parser.add_argument("--busy", action="store_true", help="beside busy neighbors: kept apart")
    parser.add_argument("--again", action="store_true", help="a new study of each place")
    parser.add_argument("--table", action="store_true", help="print what is known")
    parser.add_argument("--whole", action="store_true", help="forecasts against a stopwatch")
    options = parser.parse_args()
    if options.whole:
        hold_against_stopwatch(options)
        return
    results = RESULTS.with_stem("corpus_busy") if options.busy else RESULTS
    known = json.loads(results.read_text()) if results.exists() else {}
    if not options.table:
        for name in options.places or [it for it in PLACES if PLACES[it]["half"] == options.half]:
            before = known.get(name, {})
            if before.get("commit") == stamp()["commit"] and not options.again:
                continue
            known[name] = one_place(name, options) | stamp()
            results.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    print_table(known)


def one_place(name: str, options: Any) -> dict[str, Any]:
    """The study of a place, then its arms."""
    place, root = PLACES[name], options.root.resolve() / name
    before = conditions()
    store = root / ("store_busy" if options.busy else "store")
    study = run_study(place, root, store, options)
    told = study and describe(study, store)
    print(f"{name} study: {told}", flush=True)
    recipe = store / "tuned.toml"
    words, env = parse(place["command"], root)
    arms = {"written": (root / "script", words, env)}
    if study and study["outcome"] == "faster":
        ours = [sys.executable, "-m", "steptime", "run", "--recipe", str(recipe), "--"]
        arms["tuned"] = (root / "script", [*ours, *words], env)
    for arm, key in (("expert", "expert_command"), ("expert-also", "expert_also")):
        if key in place:
            arms[arm] = (root / "expert", *parse(place[key], root))
    rounds = []
    for number in range(options.rounds):
        order = list(arms)[:: 1 if number % 2 == 0 else -1]
        found = {}
        for arm in order:
            folder, words, env = arms[arm]
            found[arm] = run_arm(folder / place["folder"], words, env, root, options)
        found = {arm: of_same_steps(found, arm) for arm in order}
        for arm in order:
            print(f"{name} round {number + 1}: {arm:8} {found[arm]}", flush=True)
        rounds.append(found)
    return {"study": told, "rounds": rounds, "before": before, "load_after": os.getloadavg()}


def hold_against_stopwatch(options: Any) -> None:
    """The forecast of each place's whole command, and what a stopwatch says."""
    out = RESULTS.with_stem("corpus_whole")
    known = json.loads(out.read_text()) if out.exists() else {}
    for name in options.places or sorted(PLACES):
        place, root = PLACES[name], options.root.resolve() / name
        path = root / "store" / "study.json"
        study = json.loads(path.read_text())["data"]["study"] if path.exists() else {}
        if study.get("outcome") != "faster" or "whole_updates" not in place:
            continue
        told = forecast_of(root / "store", study, place["whole_updates"])
        words, env = parse(place.get("whole_command", place["command"]), root)
        recipe = ["run", "--recipe", str(root / "store" / "tuned.toml"), "--"]
        arms = {"written": words, "tuned": [sys.executable, "-m", "steptime", *recipe, *words]}
        took: dict[str, list[float]] = {arm: [] for arm in arms}
        for number in range(options.rounds):
            for arm in list(arms)[:: 1 if number % 2 == 0 else -1]:
                began = time.monotonic()
                subprocess.run(
                    arms[arm],
                    cwd=root / "script" / place["folder"],
                    env=surroundings(root, env),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                took[arm].append(time.monotonic() - began)
        known[name] = {"forecast": told, "took_s": took, "load_after": os.getloadavg()} | stamp()
        out.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        for arm, seconds in took.items():
            mean_s, each = sum(seconds) / len(seconds), told[arm]
            word = "within" if each["low"] <= mean_s <= each["high"] else "OUTSIDE"
            print(f"{name} {arm:8} {span(each)} took {mean_s:.1f} s: {word}", flush=True)


def forecast_of(store: Path, study: dict[str, Any], num_steps: int) -> dict[str, Any]:
    """What `--run-steps` would forecast, from the parts that a study has on file [s]."""
    from steptime.core.codec import from_json, to_json
    from steptime.core.interval import Interval
    from steptime.tune.search.bench import Baseline
    from steptime.tune.search.mechanism import PAYS_LATER
    from steptime.tune.search.proof.whole_run import forecast_whole_run

    answers = store / ".steptime" / "studies" / study["study_id"] / "answers"
    documents = [json.loads(path.read_text()) for path in sorted(answers.glob("*.json"))]
    recipe = study["recipe"]
    known = [it for it in documents[1:] if kind_of(it, recipe) == "proof"]
    between = [it for it in known if it["ask"] == "compare_processes"]
    proofs = [it["result"] for it in between or known]
    pairs = [it for it in documents[1:] if it["ask"] == "compare_processes"]
    loops_s = {
        one
        for it in pairs
        if not (it["request"]["reference"] or it["request"]["is_kept"])
        for one in it["result"]["reference_loop_s"]
    }
    arms = [arm for it in proofs for arm in it["arms"]]
    found = forecast_whole_run(
        from_json(Baseline, documents[0]["result"], where="baseline"),
        from_json(Interval, study["loop_speedup"] or study["speedup"], where="loop"),
        num_steps,
        one_off_s=max(arm["compile_s"] for arm in arms),
        start_s=max(arm["start_s"] or 0.0 for arm in arms),
        is_later=any(one["name"] in PAYS_LATER for one in recipe),
        loops_s=sorted(loops_s),
    )
    assert found is not None
    told = {"written": to_json(found.baseline), "tuned": to_json(found.tuned)}
    return {arm: each | {"median": each["estimate"]} for arm, each in told.items()}


def parse(command: str, root: Path) -> tuple[list[str], dict[str, str]]:
    """Words of a command, and the variables that stand in front of them."""
    words = shlex.split(command.replace("{root}", str(root)).replace("{data}", str(DATA)))
    first = next(place for place, word in enumerate(words) if "=" not in word)
    return words[first:], dict(word.split("=", 1) for word in words[:first])


def surroundings(root: Path, env: dict[str, str]) -> dict[str, str]:
    """The environment of a place, with nothing of ours."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME", "OMP"))}
    own["PATH"] = f"{root / 'env' / 'bin'}{os.pathsep}{own['PATH']}"
    return own | {"MPLBACKEND": "agg"} | env


def run_study(place: dict[str, Any], root: Path, store: Path, options: Any) -> Any:
    """The study's document; one that was cut off goes on."""
    out = store / "study.json"
    if options.again:
        shutil.rmtree(store, ignore_errors=True)
    store.mkdir(exist_ok=True)
    ours = [sys.executable, "-m", "steptime", "tune", "--budget", options.budget]
    ours += ["--store", str(store), "--json", str(out), "-o", str(store / "tuned.toml")]
    words, env = parse(place["command"], root)
    with open(root / "study.log", "ab") as log:
        subprocess.run(
            [*ours, "--", *words],
            cwd=root / "script" / place["folder"],
            env=surroundings(root, env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return json.loads(out.read_text())["data"]["study"] if out.exists() else None


def describe(study: dict[str, Any], store: Path) -> dict[str, Any]:
    """What a study claims, and where its seconds went."""
    recipe = study["recipe"]
    confirmed = [one["state"] for one in study["trials"] if one["kind"] == "confirm"]
    spent: dict[str, float] = defaultdict(float)
    last_s, proofs_s = 0.0, {}
    live: set[str] = set()
    answers = store / ".steptime" / "studies" / study["study_id"] / "answers"
    for path in sorted(answers.glob("*.json")):
        answer = json.loads(path.read_text())
        kind, is_live = kind_of(answer, recipe), answer["ask"] == "compare_live"
        is_shown = kind == "proof" and not is_live and json.dumps(recipe) in live
        spent["shown between" if is_shown else kind] += answer["spent_s"] - last_s
        last_s = answer["spent_s"]
        for state in confirmed:
            key = json.dumps(state)
            if kind_of(answer, state) == "proof" and (is_live or key not in live):
                proofs_s[key] = last_s
                if is_live:
                    live.add(key)
    return {
        "outcome": study["outcome"],
        "reason": study["reason"],
        "recipe": recipe,
        "speedup": study["speedup"],
        "loop_speedup": study["loop_speedup"],
        "spent_s": {kind: round(seconds, 1) for kind, seconds in spent.items()},
        "unused_s": round(study["budget_s"] - last_s, 1),
        "proofs_after_s": sorted(round(seconds, 1) for seconds in proofs_s.values()),
        "choices": [[one["code"], one["lever"], one["facts"]] for one in study["choices"]],
    }


def kind_of(answer: dict[str, Any], recipe: Any) -> str:
    """What a question was asked for: the recipe's own are told apart."""
    ask, request = answer["ask"], answer["request"]
    if ask == "observe":
        return ask
    if ask == "judge":
        return "judged, the recipe" if request["state"] == recipe else "judged, others"
    if ask == "compare_live":
        if not request["is_fresh"]:
            return "live"
        states = [[*request["fixed"], *state] for state in request["states"]]
        return "proof" if recipe in states else "fresh live"
    if request["is_kept"]:
        return "kept pairs"
    return "proof" if request["candidate"] == recipe else "pairs of starts"


def run_arm(
    folder: Path, words: list[str], env: dict[str, str], root: Path, options: Any
) -> dict[str, Any]:
    """One run of an arm: when its steps ended [s], by the clock from outside."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "stamps.json"
        own = surroundings(root, env)
        path = [str(CLOCK), *([own["PYTHONPATH"]] if "PYTHONPATH" in own else [])]
        clock = {"CLOCK_OUT": str(out), "CLOCK_SECONDS": str(options.seconds)}
        with open(Path(name) / "log", "wb") as log:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=own | clock | {"PYTHONPATH": os.pathsep.join(path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + options.limit
        while process.poll() is None and not out.exists() and time.monotonic() < until:
            time.sleep(0.1)
        kill(process)
        if not out.exists():
            return {"failed": (Path(name) / "log").read_text(errors="replace")[-600:]}
        return json.loads(out.read_text())


def of_same_steps(found: dict[str, dict[str, Any]], arm: str) -> dict[str, Any]:
    """A step of an arm's loop [s], over the later ones of those that all arms of the round made."""
    if "stamps" not in found[arm]:
        return found[arm]
    last = min(len(one["stamps"]) for one in found.values() if "stamps" in one) - 1
    first = math.ceil(UNCOUNTED * last)
    if last - first < 5:
        return {"failed": f"{last + 1} steps"}
    stamps = found[arm]["stamps"]
    step_s = (stamps[last] - stamps[first]) / (last - first)
    return {"step_s": step_s, "n": last - first, "start_s": found[arm]["start_s"]}


def kill(process: subprocess.Popen[bytes]) -> None:
    """End an arm with all that it started."""
    import psutil

    try:
        family = [*psutil.Process(process.pid).children(recursive=True)]
    except psutil.Error:
        family = []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for one in family:
        with contextlib.suppress(psutil.Error):
            one.kill()
    process.wait()


def ratio(rounds: list[dict[str, Any]], arm: str, other: str) -> dict[str, float] | None:
    """How much faster an arm is than another, by the rounds that have both."""
    both = [(it[other]["step_s"], it[arm]["step_s"]) for it in rounds if has(it, arm, other)]
    if not both:
        return None
    found = interval([math.log(slow / fast) for slow, fast in both])
    return {k: v if k == "n" else math.exp(v) for k, v in found.items()}


def faster_of(rounds: list[dict[str, Any]], arm: str, other: str) -> str:
    """Return the arm that is faster; with another number of threads an expert's may be."""
    found = ratio(rounds, other, arm)
    return other if found and found["median"] > 1 else arm


def has(one: dict[str, Any], *arms: str) -> bool:
    """Whether the arms ran in a round."""
    return all("step_s" in one.get(arm, {}) for arm in arms)


def print_table(known: dict[str, Any]) -> None:
    """Both halves apart; what has no recipe counts as written."""
    for half in HALVES:
        logs = []
        print(f"\n{half}: claim of the loop; tuned, expert over written; tuned over expert")
        for name, one in sorted(known.items()):
            if PLACES[name]["half"] != half:
                continue
            rounds, study = one["rounds"], one["study"] or {}
            best = faster_of(rounds, "expert", "expert-also")
            tuned, expert = (ratio(rounds, arm, "written") for arm in ("tuned", best))
            against = ratio(rounds, "tuned", best) or (
                expert and {"median": 1 / expert["median"], "low": math.nan, "high": math.nan}
            )
            if against:
                logs.append(math.log(against["median"]))
            claim = study.get("loop_speedup") or study.get("speedup")
            names = ", ".join(it["name"] for it in study.get("recipe", ())) or study.get("outcome")
            cells = [span(claim and claim | {"median": claim["estimate"]}), span(tuned)]
            kind = PLACES[name]["kind"]
            print(f"{name} {kind:16}", *cells, span(expert), span(against), one["commit"], names)
            spent = study.get("spent_s", {})
            kept = sum(spent.get(it, 0) for it in ("proof", "shown between", "judged, the recipe"))
            parts = ", ".join(f"{kind} {seconds:.0f}" for kind, seconds in spent.items())
            print(f"   {parts}, unused {study.get('unused_s')} s; proofs after", end=" ")
            print(study.get("proofs_after_s"), f"s; {kept / max(1, sum(spent.values())):.0%} on it")
        if logs:
            print(f"geometric mean of tuned over expert: {math.exp(sum(logs) / len(logs)):.2f}")


def span(found: dict[str, float] | None) -> str:
    """A ratio with its interval."""
    if not found:
        return f"{'-':22}"
    return f"{found['median']:5.2f} [{found['low']:.2f}, {found['high']:.2f}]".ljust(22)


if __name__ == "__main__":
    main()
