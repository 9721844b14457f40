"""Checks the samples that a training command is given, and their order.

In: a command, or sources of samples. Out: a `DataCheckReport`.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.app.data.data_children import SEED, OrderChildren, SeenInChild
from steptime.core.store import store_in
from steptime.data.check.epoch_checks import check_epochs, undecided
from steptime.data.check.leak_checks import NAME as LEAKAGE
from steptime.data.check.leak_checks import check_loaders_apart
from steptime.data.check.resume_checks import HOW, check_resume
from steptime.data.check.resume_checks import NAME as RESUME
from steptime.data.check.seen_orders import LoaderSeen
from steptime.data.check.shuffle_checks import check_shuffle, check_sorted
from steptime.data.check.worker_checks import NAME as WORKERS
from steptime.data.check.worker_checks import check_workers, needs_again
from steptime.data.values.data_check_values import DataCheck, DataCheckReport, outcome_of
from steptime.errors import UsageError

EPOCH_CHECKS = (
    "reshuffled",
    "set_epoch",
    "duplicates",
    "samples_lost",
    "ranks_apart",
    "shuffle_quality",
    "sorted_input",
)
CHECKS = (*EPOCH_CHECKS, LEAKAGE, WORKERS, RESUME)

NUM_WORKERS = (0, 1, 2, 4)
NO_TIME = "no time was left for it"
MORE_TIME = "Give it more time: --budget 20m."

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheckOptions:
    """What `steptime data check -- COMMAND` was asked for.

    The order is known of whole epochs, whatever `batches` says; `budget_s` is for all children.
    `resume` is the command that goes on from a checkpoint, and `only` names checks; None for all.
    """

    command: tuple[str, ...]
    store: Path
    epochs: int = 2
    batches: int = 20
    budget_s: float = 300.0
    resume: str | None = None
    only: tuple[str, ...] | None = None
    share_network: bool = False
    allow_unsafe: bool = False

    def wants(self, *names: str) -> bool:
        """Return whether one of these checks is wanted."""
        return self.only is None or any(name in self.only for name in names)


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a name that is no check.

    Raises:
        UsageError: one of them is not known.
    """
    for name in names:
        if name not in known:
            raise UsageError(
                f"--checks: there is no check `{name}`.", hint=f"There are: {', '.join(known)}."
            )


def check_command(asked: DataCheckOptions, *, tell: Tell) -> DataCheckReport:
    """Run the command in contained children, and check what its loaders hand out.

    Raises:
        NotStartedError: there is no such command.
        ContainmentError: nothing here keeps a child from doing harm.
    """
    store = store_in(asked.store)
    store.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="check-", dir=store))
    try:
        children = OrderChildren(
            asked.command,
            folder=folder,
            budget_s=asked.budget_s,
            share_network=asked.share_network,
            allow_unsafe=asked.allow_unsafe,
        )
        return _check(asked, children, tell)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(asked: DataCheckOptions, children: OrderChildren, tell: Tell) -> DataCheckReport:
    tell("the command as written, its epochs cut short")
    wish = {"epochs": asked.epochs, "batches": asked.batches, "contents": asked.wants(LEAKAGE)}
    seen = children.see("script", wish)
    loaders = [] if seen is None else seen.loaders
    numbers = sorted({one.number for one in loaders if one.trained})
    checks: list[DataCheck] = []
    for number in numbers:
        ranks = [one for one in loaders if one.number == number]
        checks += check_epochs(ranks)
        checks += [check_shuffle(ranks[0]), check_sorted(ranks[0])]
    checks += check_loaders_apart(loaders)
    if numbers and asked.wants(WORKERS):
        checks.append(_check_workers(asked, children, numbers[0], tell))
    if numbers and asked.wants(RESUME) and not _passes_over_resume(asked):
        checks.append(_check_resume(asked, children, numbers[0], tell))
    chosen = tuple(check for check in checks if asked.wants(check.name))
    return DataCheckReport(
        subject=asked.command,
        outcome=outcome_of(chosen),
        checks=chosen,
        failure=_failure(seen) if not numbers else None,
        limits=_limits(asked, seen, has_trained=bool(numbers)),
    )


def _check_workers(
    asked: DataCheckOptions, children: OrderChildren, number: int, tell: Tell
) -> DataCheck:
    """Run the command with each number of workers, all generators seeded alike."""
    found: dict[int, LoaderSeen] = {}

    def see(name: str, num_workers: int) -> LoaderSeen | None:
        tell(f"with {num_workers} workers")
        wish = {"epochs": 1, "batches": asked.batches, "num_workers": num_workers, "seed": SEED}
        seen = children.see(name, wish)
        return None if seen is None else seen.loader(number)

    for num_workers in NUM_WORKERS:
        loader = see(f"workers-{num_workers}", num_workers)
        if loader is not None:
            found[num_workers] = loader
    if len(found) < 2:
        return undecided(WORKERS, NO_TIME, None, advice=MORE_TIME)
    again = see("workers-again", 0) if needs_again(found) else None
    return check_workers(found, again=again)


def _check_resume(
    asked: DataCheckOptions, children: OrderChildren, number: int, tell: Tell
) -> DataCheck:
    """Run the command to the beginning of its second epoch, and go on from its checkpoint."""
    if asked.resume is None:
        return undecided(RESUME, "no --resume says how the script resumes", None, advice=HOW)
    tell("a run that is broken off, and resumed")
    resume = shlex.join(shlex.split(asked.resume))
    wish = {"epochs": 2, "batches": asked.batches, "last_batches": 0}
    then = {"epochs": 1, "batches": asked.batches}
    seen = children.see_resumed("resume", resume, wish=wish, then=then)
    if seen is None:
        return undecided(RESUME, NO_TIME, None, advice=MORE_TIME)
    before = seen.loader(number)
    trained = [one for one in seen.resumed if one.trained]
    same = [one for one in trained if before is not None and one.place == before.place]
    check = check_resume(before, next(iter(same or trained), None))
    if not trained and seen.ended.text:
        return replace(check, evidence=(seen.ended.text.rpartition("\n")[2],))
    return check


def _failure(seen: SeenInChild | None) -> str | None:
    """Return how the command failed before it trained; None where it did not fail."""
    process = None if seen is None else seen.ended.process
    if seen is None or process is None or process.exit_code == 0:
        return None
    code = process.exit_code
    how = f"signal {process.signal}" if code is None else f"exit code {code}"
    return f"the command ended with {how}: {seen.ended.text.rpartition(chr(10))[2]}"


def _limits(
    asked: DataCheckOptions, seen: SeenInChild | None, *, has_trained: bool
) -> tuple[str, ...]:
    """Return what was looked at."""
    if seen is None:
        return (NO_TIME,)
    if not has_trained:
        return ("no torch DataLoader was seen whose batches were trained on",)
    looked_at = (
        f"{asked.epochs} epochs; the whole order of each, and its first {asked.batches} batches"
    )
    if _passes_over_resume(asked):
        return looked_at, f"Not checked: the order after a resume. {HOW}"
    return (looked_at,)


def _passes_over_resume(asked: DataCheckOptions) -> bool:
    """Return whether a resume was not asked for: many scripts have none."""
    return asked.resume is None and asked.only is None
