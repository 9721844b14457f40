"""Makes the runs of both arms over seeds, in contained children, and keeps what each of them said.

In: two commands, a number of seeds, and where the metric is. Out: `TrainingRun`s. The arms take
turns, so that a busy hour meets both. A finished run is on disk before the next one begins, and is
not made again: the same call goes on where it was ended.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from steptime.app.run_tables import POINTS
from steptime.core.codec import from_json, to_json
from steptime.core.executable import NotStarted
from steptime.core.store import make_folder, write_text
from steptime.core.units import format_seconds
from steptime.errors import NotStartedError, RunsError, ScriptFailedError, UsageError
from steptime.isolate.child import start_contained
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment
from steptime.launch.user_command import shell_exit_code, user_environment
from steptime.record.regular_file import read_regular
from steptime.verify.convergence.statistics import mean
from steptime.verify.values.seed_runs import CANDIDATE, REFERENCE, TrainingRun

FOLDER, KEPT = "verifications", "metric"
SEED = "{seed}"
_TAIL_LINES = 5

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRuns:
    """The runs that are wanted.

    Attributes:
        reference: the training as it is, a shell command.
        candidate: the training as it shall be.
        num_seeds: runs of each.
        metric: where a run says its metric: a regular expression whose first group is the number
            and whose group `step`, if it has one, says where; `csv:FILE:COLUMN`, `json:FILE:KEY`.
        store: the folder that holds `.steptime`.
        seed_flag: option of the script that takes the seed; None: `{seed}` stands in the commands.
        limit_s: how long one run may take [s].
        is_fresh: earlier runs of the same commands are not used.
        share_network: runs may use the network of this machine.
        allow_unsafe: runs are made even where nothing contains them.
    """

    reference: str
    candidate: str
    num_seeds: int
    metric: str
    store: Path
    seed_flag: str | None = None
    limit_s: float = 86_400.0
    is_fresh: bool = False
    share_network: bool = False
    allow_unsafe: bool = False

    def command(self, arm: str, seed: int) -> str:
        """Return the command of one run."""
        text = self.reference if arm == REFERENCE else self.candidate
        if self.seed_flag is not None:
            return f"{text} {self.seed_flag} {seed}"
        return text.replace(SEED, str(seed))


def make_runs(asked: SeedRuns, *, tell: Tell) -> tuple[TrainingRun, ...]:
    """Make the runs that are not there yet; return all of them.

    Raises:
        UsageError: nothing in a command takes the seed, or the metric is no place that is known.
        RunsError: a run did not say its metric.
        ScriptFailedError: a run failed.
        NotStartedError: there is no shell.
        ContainmentError: nothing here keeps a run from doing harm.
    """
    check_asked(asked)
    folder = make_folder(asked.store, kind=FOLDER) / key_of(asked)
    if asked.is_fresh and folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    containment = probe(
        folder.resolve(), allow_unsafe=asked.allow_unsafe, share_network=asked.share_network
    )
    wanted = list(turns(asked.num_seeds))
    found, took_s = list[TrainingRun](), list[float]()
    for number, (arm, seed) in enumerate(wanted, start=1):
        path = folder / f"{arm}-{seed}.json"
        if path.exists():
            found.append(from_json(TrainingRun, json.loads(read_regular(path))))
            continue
        left = ""
        if took_s:
            left = f" · about {format_seconds(mean(took_s) * (len(wanted) - number + 1))} left"
        tell(f"run {number} of {len(wanted)}: {arm}, seed {seed}{left}")
        run = make_run(asked, arm, seed, folder=folder.resolve(), containment=containment)
        took_s.append(run.seconds or 0.0)
        write_text(path, json.dumps(to_json(run)) + "\n")
        found.append(run)
    return tuple(found)


def check_asked(asked: SeedRuns) -> None:
    """Refuse commands without a place for the seed, and metrics of no known kind.

    Raises:
        UsageError: of either kind.
    """
    for name, text in (("--reference", asked.reference), ("--candidate", asked.candidate)):
        if asked.seed_flag is None and SEED not in text:
            raise UsageError(
                f"nothing in {name} takes the seed, so all runs would be the same.",
                hint=f"Write {SEED} into the command, or name --seed-flag=--seed.",
            )
    check_metric(asked.metric)


def check_metric(metric: str) -> None:
    """Refuse a metric of no known kind.

    Raises:
        UsageError: it is none.
    """
    kind, _, rest = metric.partition(":")
    if kind in ("csv", "json"):
        if not all(rest.partition(":")[::2]):
            raise UsageError(f"--metric {kind}: needs a file and a name, as {kind}:FILE:NAME.")
        return
    try:
        groups = re.compile(metric).groups
    except re.error as error:
        raise UsageError(f"--metric is no regular expression: {error}.") from error
    if groups <= ("(?P<step>" in metric):
        raise UsageError(
            "the pattern of --metric has no group.", hint="Write: --metric 'val loss ([0-9.]+)'"
        )


def key_of(asked: SeedRuns) -> str:
    """Return the name of the folder for runs of these commands and this metric."""
    words = [asked.reference, asked.candidate, asked.metric, asked.seed_flag, str(Path.cwd())]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def turns(num_seeds: int) -> Iterator[tuple[str, int]]:
    """Yield arm and seed: AB, BA, AB, ..."""
    for seed in range(1, num_seeds + 1):
        arms = (REFERENCE, CANDIDATE) if seed % 2 else (CANDIDATE, REFERENCE)
        for arm in arms:
            yield arm, seed


def make_run(
    asked: SeedRuns, arm: str, seed: int, *, folder: Path, containment: Containment
) -> TrainingRun:
    """Run one training to its end, and return what it said."""
    own = folder / f"{arm}-{seed}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    command = asked.command(arm, seed)
    began_s = time.monotonic()
    child = start_contained(
        ("sh", "-c", with_kept(command, asked.metric, own / KEPT)),
        user_environment(),
        cwd=Path.cwd(),
        folder=own,
        containment=containment,
    )
    if isinstance(child, NotStarted):
        raise NotStartedError(f"`sh` {child.reason}.", exit_code=child.exit_code)
    try:
        end = child.wait(asked.limit_s)
    finally:
        child.kill()
    seconds = time.monotonic() - began_s
    if end is None:
        raise ScriptFailedError(
            f"the {arm} with seed {seed} did not end within {format_seconds(asked.limit_s)}.",
            hint="Give it more time with --limit.",
        )
    points, values = read_metric(asked.metric, own)
    run = TrainingRun(
        arm=arm, seed=str(seed), points=points, values=values, seconds=round(seconds, 3)
    )
    if shell_exit_code(end) and not run.has_diverged:
        raise ScriptFailedError(
            f"the {arm} with seed {seed} ended with {shell_exit_code(end)}: {last_words(own)}",
            hint=f"Its output is in {own}.",
        )
    if not values:
        raise RunsError(
            f"the {arm} with seed {seed} said no metric.",
            code="no_metric",
            hint=f"Compare --metric with its output in {own}.",
        )
    return run


def with_kept(command: str, metric: str, kept: Path, *, every_s: float | None = None) -> str:
    """Return the command; with what copies the file of the metric out of the child.

    Args:
        command: for the shell.
        metric: where the metric is.
        kept: what the file is copied to.
        every_s: it is also copied so often while the command runs, once the command has written
            it: what an earlier run left there is none of this one [s].
    """
    kind, _, rest = metric.partition(":")
    if kind not in ("csv", "json"):
        return command
    file, target = shlex.quote(rest.partition(":")[0]), shlex.quote(str(kept))
    last = f"( {command}\n); code=$?; cp -- {file} {target}; exit $code"
    if every_s is None:
        return last
    copy = f"cp -- {file} {target}.new && mv -- {target}.new {target}"
    copies = f"while sleep {every_s}; do [ {file} -nt {target}.began ] && {copy}; done"
    return f": > {target}.began; ( {copies} ) 2> /dev/null & {last}"


def read_metric(metric: str, folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return where a run was evaluated, and its metric there; empty where it said none."""
    kind, _, rest = metric.partition(":")
    name = rest.partition(":")[2]
    if kind in ("csv", "json"):
        path = folder / KEPT
        text = _text_of(path)
        found = list((_in_csv if kind == "csv" else _in_json)(text, name))
    else:
        found = list(_in_output(metric, _output(folder)))
    points = [at for at, _ in found]
    if any(b <= a for a, b in pairwise(points)):
        points = [float(number) for number in range(1, len(found) + 1)]
    return tuple(points), tuple(value for _, value in found)


def _output(folder: Path) -> str:
    """Return what a run wrote: the standard output, then the standard error."""
    paths = (folder / "stdout", folder / "stderr")
    return "\n".join(map(_text_of, paths))


def _text_of(path: Path) -> str:
    return read_regular(path).decode("utf-8", errors="replace") if path.exists() else ""


def last_words(folder: Path) -> str:
    """Return the last lines that a run wrote, in one."""
    lines = [line for line in _output(folder).splitlines() if line.strip()]
    return " / ".join(lines[-_TAIL_LINES:]) or "it wrote nothing"


def _in_output(pattern: str, text: str) -> Iterator[tuple[float, float]]:
    """Yield the first group of each match but `step`, at the group `step`."""
    value = 2 if re.compile(pattern).groupindex.get("step") == 1 else 1
    matches = re.finditer(pattern, text)
    yield from _placed((found.groupdict().get("step"), found[value]) for found in matches)


def _in_csv(text: str, column: str) -> Iterator[tuple[float, float]]:
    """Yield a column."""
    rows = csv.DictReader(text.splitlines())
    yield from _placed((_point_of(row), row.get(column)) for row in rows)


def _in_json(text: str, key: str) -> Iterator[tuple[float, float]]:
    """Yield a key of one object, of each object of a list, or of each line."""
    documents: list[Any]
    try:
        found = json.loads(text)
        documents = found if isinstance(found, list) else [found]
    except ValueError:
        documents = [one for line in text.splitlines() if (one := _loaded(line)) is not None]
    rows = [one if isinstance(one, dict) else {} for one in documents]
    yield from _placed((_point_of(row), row.get(key)) for row in rows)


def _placed(found: Iterable[tuple[object, object]]) -> Iterator[tuple[float, float]]:
    """Yield the numbers, each at its point, or at its place among them where none is known."""
    for number, (point, text) in enumerate(found, start=1):
        at, value = _number(point), _number(text)
        if value is not None:
            yield (float(number) if at is None else at), value


def _point_of(row: Mapping[str, object]) -> object:
    return next((row[name] for name in POINTS if row.get(name) not in (None, "")), None)


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _number(text: object) -> float | None:
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
