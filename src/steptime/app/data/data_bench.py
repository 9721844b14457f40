"""Measures the loader of a training command: what it costs by part, and what a better one gains.

In: a command. Out: a `LoaderBench` with the folder of its passes. Each pass is a contained child of
its own, so nothing of the user's is disturbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steptime.app.stored.page_file import try_page, write_page_file
from steptime.core.executable import need_executable
from steptime.core.folder_lock import working_in
from steptime.core.store import Run, create_run, write_value
from steptime.data.tf_data import read_tf_data
from steptime.data.values.tf_data_values import TfData
from steptime.isolate.left.left_folders import remove_left, temporary_folders
from steptime.isolate.probe import probe
from steptime.launch.user_command import user_environment
from steptime.levers import NAMES
from steptime.measure.tried.bench_lines import PassLines, find_line, find_lines, make_loader_bench
from steptime.measure.values.loader_bench import LoaderBench
from steptime.record import kinds
from steptime.tune.trials.children.bench_child import BenchStart, PassEnded, run_pass
from steptime.tune.trials.facts.resources import count_cores
from steptime.tune.values.study_values import TrialEnd

Tell = Callable[[str], None]

BENCHES = "benches"
VALUE, PAGE = "bench.json", "bench.html"
FULL = "full"

MORE_ROUNDS = 2
"""So often are both loops timed again, each time twice as long, while the bound is unclear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to measure, and how long.

    `seconds` is how long the loop is timed in each pass [s], for 20 steps at least, and longer
    where the bound is unclear; `steps` is the most in the first passes, None for 400.
    """

    command: tuple[str, ...]
    store: Path = Path(".")
    seconds: float = 3.0
    steps: int | None = None
    with_curve: bool = False
    allow_unsafe: bool = False
    share_network: bool = False


def bench_loader(options: BenchOptions, *, tell: Tell) -> tuple[LoaderBench, Run]:
    """Measure the loader that feeds a training; return what was found, and where it is kept.

    Raises:
        NotFoundError: there is no such command.
        ContainmentError: nothing here keeps a child from doing harm.
    """
    environment = user_environment()
    need_executable(options.command, environment)
    remove_left(temporary_folders())
    run = create_run(options.store, started_unix_s=time.time(), kind=BENCHES)
    run = replace(run, folder=run.folder.resolve())
    containment = probe(
        run.folder, allow_unsafe=options.allow_unsafe, share_network=options.share_network
    )
    start = BenchStart(
        argv=options.command,
        environment=environment,
        folder=run.folder,
        cwd=Path.cwd(),
        containment=containment,
        tell=tell,
    )
    with working_in(run.folder):
        bench = _measure(start, options, tell)
    write_value(run, VALUE, bench)
    return bench, run


def _measure(start: BenchStart, options: BenchOptions, tell: Tell) -> LoaderBench:
    wish: dict[str, Any] = {"seconds": options.seconds, "steps": options.steps}
    tell("the loop with its loader")
    asks_tf_data = {**start.environment, "STEPTIME_TFDATA": "1"}
    with_both = replace(start, environment=asks_tf_data)
    full = run_pass(with_both, {**wish, "pass": "full"}, name=FULL)
    num_cores = count_cores()
    if find_line(full.lines, kinds.BENCH_LOOP) is None:
        bench = make_loader_bench(options.command, PassLines(), num_cores=num_cores)
        if read_tf_data(start.folder / FULL, num_cores=num_cores) is not None:
            return replace(bench, missing={"loader": "tf_data"})
        return _without_loader(bench, full)
    tell("the loop with a kept batch")
    keeps: dict[str, Any] = {"pass": "consumer"}
    consumer = run_pass(start, {**wish, **keeps}, name="consumer")
    notes: tuple[str, ...] = ()
    loop = find_line(consumer.lines, kinds.BENCH_LOOP)
    if loop is None or not loop["steps"]:
        tell("the loop with a kept batch on the host")
        keeps["moves"] = False
        consumer = run_pass(start, {**wish, **keeps}, name="consumer-on-host")
        notes = ("copy_in_consumer",)
    lines = PassLines(full=full.lines, consumer=consumer.lines)
    lines = _take_again(start, options, lines, keeps, tell)
    tell("batches apart: bytes cached, then cold")
    parts = run_pass(start, {**wish, "pass": "parts", "curve": options.with_curve}, name="parts")
    lines = replace(lines, parts=parts.lines)
    bench = make_loader_bench(options.command, lines, num_cores=num_cores)
    return replace(bench, notes=(*bench.notes, *notes))


def _take_again(
    start: BenchStart, options: BenchOptions, lines: PassLines, keeps: dict[str, Any], tell: Tell
) -> PassLines:
    """Time both loops again, in turns, while it is unclear whether a loader helps."""
    if not any(line["steps"] for line in find_lines(lines.consumer)):
        return lines
    for num in range(2, 2 + MORE_ROUNDS):
        bench = make_loader_bench(options.command, lines, num_cores=1)
        if "bottleneck" not in bench.missing:
            break
        many, steps = 2 ** (num - 1), options.steps
        wish = {"seconds": many * options.seconds, "steps": steps and many * steps}
        tell("it is not clear yet whether a loader helps: both loops again, for longer")
        full = run_pass(start, {**wish, "pass": "full"}, name=f"{FULL}-{num}")
        consumer = run_pass(start, {**wish, **keeps}, name=f"consumer-{num}")
        lines = replace(
            lines,
            full=(*lines.full, *full.lines),
            consumer=(*lines.consumer, *consumer.lines),
        )
    return lines


def tf_data_of(bench: LoaderBench, run: Run) -> TfData | None:
    """Return what tf.data said in place of a torch loader; None where it was not used."""
    if bench.missing.get("loader") != "tf_data":
        return None
    return read_tf_data(run.folder / FULL, num_cores=bench.num_cores)


def write_loader_page(bench: LoaderBench, run: Run) -> Path | None:
    """Write the page beside the passes; None where there was no loader, or it cannot be written."""
    if bench.loader is None:
        return None
    from steptime.report.blocks.data.loader_report import loader_report

    report = loader_report(bench, levers=NAMES)
    return try_page(lambda: write_page_file(report, run.folder / PAGE))


def _without_loader(bench: LoaderBench, full: PassEnded) -> LoaderBench:
    """Say what was seen in place of a loader that feeds a training."""
    missing, details = {"loader": "no_steps"}, dict[str, str]()
    ended = find_line(full.lines, kinds.BENCH_ENDED)
    failure = find_line(full.lines, kinds.BENCH_FAILED)
    if full.ended is not None and full.ended.end is not TrialEnd.FINISHED:
        missing["loader"] = "command_failed"
        details["loader"] = _describe_end(full)
    elif failure is not None:
        missing["loader"], details["loader"] = "own_failure", str(failure["error"])
    elif full.num_updates and not (ended or {}).get("batches"):
        missing["loader"], details["loader"] = "no_loader", str(full.num_updates)
    elif ended is not None and ended["batches"]:
        missing["loader"] = "few_batches" if full.num_updates else "not_trained"
        details["loader"] = str(ended["batches"])
    return replace(bench, missing=missing, details=details)


def _describe_end(full: PassEnded) -> str:
    assert full.ended is not None
    process = full.ended.process
    code = "" if process is None or process.exit_code is None else f"exit code {process.exit_code}"
    signal = "" if process is None or process.signal is None else f"signal {process.signal}"
    last = full.ended.text.rpartition("\n")[2]
    return ": ".join(part for part in (code or signal or full.ended.end.value, last) if part)
