"""Makes the runs of both arms over seeds, in contained children, and keeps what each of them said.

In: two commands, a number of seeds, and where the metric is. Out: `TrainingRun`s. The arms take
turns, so that a busy hour meets both. A finished run is on disk before the next one begins, and is
not made again: the same call goes on where it was ended.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.app.search.run_metric import KEPT, check_metric, last_lines, read_metric, with_kept
from steptime.core.codec import from_json, render
from steptime.core.executable import NotStarted
from steptime.core.folder_lock import working_in
from steptime.core.store import make_folder, write_text
from steptime.core.units import format_seconds
from steptime.errors import NotStartedError, RunsError, ScriptFailedError, UsageError
from steptime.isolate.child import start_contained
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment
from steptime.launch.user_command import seeded_environment, shell_exit_code, user_environment
from steptime.record.regular_file import read_regular
from steptime.verify.convergence.statistics import load_scipy, mean
from steptime.verify.values.seed_runs import CANDIDATE, CUT, REFERENCE, TrainingRun

FOLDER = "verifications"
SEED = "{seed}"
LEAST_POINTS = 3
"""Of two runs with the same values; a coarse metric with fewer may agree by chance."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRuns:
    """The runs that are wanted.

    Attributes:
        reference: the training as it is, a shell command.
        candidate: the training as it shall be.
        num_seeds: runs of each.
        metric: where a run says its metric: a regular expression whose first group is the number
            and whose group `step`, if it has one, says where; `csv:FILE:COLUMN`, `json:FILE:KEY`,
            `tb:TAG`.
        store: the folder that holds `.steptime`.
        seed_flag: option of the script that takes the seed; None: `{seed}` stands in the commands,
            or in none of them: then random, numpy and torch are seeded in each Python process.
        cut: the reference with fewer steps, against which a margin in percent of training is
            measured; None: the slope at the end of the reference says what they are worth.
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
    cut: str | None = None
    limit_s: float = 86_400.0
    is_fresh: bool = False
    share_network: bool = False
    allow_unsafe: bool = False

    @property
    def commands(self) -> dict[str, str]:
        """The command of each arm."""
        found = {REFERENCE: self.reference, CANDIDATE: self.candidate}
        return found if self.cut is None else {**found, CUT: self.cut}

    @property
    def is_seeded_by_guest(self) -> bool:
        """Whether nothing in the commands takes the seed."""
        return self.seed_flag is None and SEED not in self.reference

    def command(self, arm: str, seed: int) -> str:
        """Return the command of one run."""
        text = self.commands[arm]
        if self.seed_flag is not None:
            return f"{text} {self.seed_flag} {seed}"
        return text.replace(SEED, str(seed))

    def environment(self, folder: Path, seed: int) -> Mapping[str, str]:
        """Return the variables of one run."""
        if self.is_seeded_by_guest:
            return seeded_environment(user_environment(), folder, seed)
        return user_environment()


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
    with working_in(folder):
        return _make_in(folder, asked, tell)


def _make_in(folder: Path, asked: SeedRuns, tell: Tell) -> tuple[TrainingRun, ...]:
    containment = probe(
        folder.resolve(), allow_unsafe=asked.allow_unsafe, share_network=asked.share_network
    )
    wanted = list(turns(asked.num_seeds, tuple(asked.commands)))
    found, took_s = list[TrainingRun](), list[float]()
    for number, (arm, seed) in enumerate(wanted, start=1):
        path = folder / f"{arm}-{seed}.json"
        if path.exists():
            found.append(read_run(path))
            continue
        left = ""
        if took_s:
            left = f" · about {format_seconds(mean(took_s) * (len(wanted) - number + 1))} left"
        tell(f"run {number} of {len(wanted)}: {arm}, seed {seed}{left}")
        run = make_run(asked, arm, seed, folder=folder.resolve(), containment=containment)
        took_s.append(run.seconds or 0.0)
        write_text(path, render(run))
        check_seed_is_used([*found, run], asked)
        found.append(run)
    return tuple(found)


def read_run(path: Path) -> TrainingRun:
    """Return a run that was kept: JSON has no number that is not finite, so null stands for it."""
    data = json.loads(read_regular(path))
    run = from_json(TrainingRun, {**data, "values": ()})
    return replace(run, values=tuple(math.nan if one is None else one for one in data["values"]))


def check_asked(asked: SeedRuns) -> None:
    """Refuse commands of which only some have a place for the seed, and metrics of no known kind.

    Raises:
        UsageError: of either kind.
        MissingExtraError: the judge, or the metric's reader, is not installed.
    """
    load_scipy()
    commands = {f"--{arm}": text for arm, text in asked.commands.items()}
    without = [flag for flag, text in commands.items() if SEED not in text]
    if asked.seed_flag is None and 0 < len(without) < len(commands):
        raise UsageError(
            f"{SEED} is missing in {' and '.join(without)}, so all of its runs would be the same.",
            hint=f"Write {SEED} into each command, name --seed-flag=--seed, or write it in none of "
            "them: then Steptime seeds random, numpy and torch.",
        )
    check_metric(asked.metric)


def key_of(asked: SeedRuns) -> str:
    """Return the name of the folder for runs of these commands and this metric."""
    words = [*asked.commands.values(), asked.metric, asked.seed_flag, str(Path.cwd())]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def check_seed_is_used(runs: Sequence[TrainingRun], asked: SeedRuns) -> None:
    """Refuse to go on where the last run repeats an earlier one of its arm with another seed.

    Raises:
        RunsError: it does.
    """
    last = runs[-1]
    for run in runs[:-1]:
        is_same = run.arm == last.arm and run.values == last.values
        if not is_same or len(run.values) < LEAST_POINTS or last.has_diverged:
            continue
        how = "takes no notice of it"
        if asked.is_seeded_by_guest:
            how = "seeds itself after Steptime did"
        raise RunsError(
            f"the {last.arm} said the same with seed {run.seed} and with seed {last.seed}: "
            f"the script {how}.",
            code="zero_variance",
            hint="Let the script take the seed, and name its option: --seed-flag=--seed.",
        )


def turns(
    num_seeds: int, arms: Sequence[str] = (REFERENCE, CANDIDATE)
) -> Iterator[tuple[str, int]]:
    """Yield arm and seed: AB, BA, AB, ..."""
    for seed in range(1, num_seeds + 1):
        for arm in arms if seed % 2 else reversed(arms):
            yield arm, seed


def make_run(
    asked: SeedRuns, arm: str, seed: int, *, folder: Path, containment: Containment
) -> TrainingRun:
    """Run one training to its end, and return what it said.

    Its folder gets the name of its arm afterwards: nothing shows a run which arm it is.
    """
    kept, own = folder / f"{arm}-{seed}", folder / "running"
    for old in (kept, own):
        shutil.rmtree(old, ignore_errors=True)
    own.mkdir()
    command = asked.command(arm, seed)
    began_s = time.monotonic()
    child = start_contained(
        ("sh", "-c", with_kept(command, asked.metric, own / KEPT)),
        asked.environment(own, seed),
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
        own.rename(kept)
    seconds = time.monotonic() - began_s
    if end is None:
        raise ScriptFailedError(
            f"the {arm} with seed {seed} did not end within {format_seconds(asked.limit_s)}.",
            hint="Give it more time with --run-timeout.",
        )
    points, values = read_metric(asked.metric, kept)
    run = TrainingRun(
        arm=arm, seed=str(seed), points=points, values=values, seconds=round(seconds, 3)
    )
    if shell_exit_code(end) and not run.has_diverged:
        raise ScriptFailedError(
            f"the {arm} with seed {seed} ended with {shell_exit_code(end)}: {last_lines(kept)}",
            hint=f"Its output is in {kept}.",
        )
    if not values:
        raise RunsError(
            f"no match for --metric: the {arm} with seed {seed} has none.",
            code="no_metric",
            hint=f"Compare --metric with its output in {kept}.",
        )
    return run
