"""Runs one fit: opens its folder, builds the bench, lets the search ask, writes what came of it.

In: `FitOptions`. Out: a `FitStudy`, which is in `fit.json` of its folder, beside its trials and its
recipe.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from steptime.core.codec import to_json
from steptime.core.executable import need_executable
from steptime.core.store import create_run, write_text
from steptime.errors import StoreError
from steptime.isolate.left.left_folders import remove_left, temporary_folders
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment
from steptime.launch.user_command import user_environment
from steptime.plan.per_device import peaks_per_device
from steptime.plan.values.shared_peaks import SharedPeak
from steptime.tune.fit.batch_rates import MEASURES
from steptime.tune.fit.fit_bench import LimitedDoor, RealFitBench
from steptime.tune.fit.fit_recipe import make_fit_recipe
from steptime.tune.fit.fit_search import FitFound, FitSearch
from steptime.tune.fit.held_parts import peaks_by_batch, peaks_by_length
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_file import write_recipe
from steptime.tune.study.study_folder import StudyFolder, hold_lock, left_shadows, read_input
from steptime.tune.study_options import TrialOptions
from steptime.tune.trials.facts.libraries import find_libraries
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.real_bench import RealBench, Subject, step_s_of
from steptime.tune.values.fit_values import FitStudy, LengthPoint
from steptime.tune.values.study_values import State

FOLDERS, RECIPE, DOCUMENT = "fits", "fit.toml", "fit.json"

END_SHARE = 0.05
"""Of the budget, for what has no end of its own: ending a trial, and the page."""

Tell = Callable[[str, State, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLimit:
    """What the training must fit into.

    Attributes:
        bytes: the limit [bytes].
        origin: `given`, `part` or `machine`, as in `FitStudy.limit_from`.
        part: name of the accelerator that was named; None where none was.
    """

    bytes: int
    origin: str
    part: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions(TrialOptions):
    """What is to fit into what, and with which levers; windows and limits follow from the budget.

    Attributes:
        limit: what it must fit into.
        measures: a forecast runs each different operator once, alone.
        num_devices: devices that shall share the training; None where nobody asked.
    """

    limit: FitLimit
    measures: bool = False
    num_devices: int | None = None


def run_fit(options: FitOptions, *, tell: Tell) -> FitStudy:
    """Find out whether a command fits, and make it fit if it does not.

    Ctrl-C ends it early: the study says `is_interrupted` and holds what was found so far.

    Args:
        options: what is asked.
        tell: gets what begins (`observe`, `forecast`, `limit`, `quality`), with which levers, and
            what is left of the budget [s].

    Raises:
        NotStartedError: there is no such command.
        ContainmentError: nothing here keeps a trial from doing harm.
        StoreError: no folder can be made.
    """
    need_executable(options.command, user_environment())
    folder = _make_folder(options)
    with hold_lock(folder):
        remove_left((*temporary_folders(), *left_shadows(folder.folder.parent)))
        return _FitRunner(options, folder, tell).go()


def _make_folder(options: FitOptions) -> StudyFolder:
    started_unix_s = time.time()
    run = create_run(options.store, started_unix_s=started_unix_s, kind=FOLDERS)
    folder = StudyFolder(
        study_id=run.run_id,
        folder=run.folder,
        key="",
        started_unix_s=started_unix_s,
        budgets_s=(options.budget_s,),
        instead_of=run.instead_of,
        because=run.because,
    )
    try:
        (folder.folder / "trials").mkdir()
    except OSError as error:
        raise StoreError(f"the folder of the fit cannot be written: {error}") from error
    return folder


class _FitRunner:
    """A fit while it runs."""

    def __init__(self, options: FitOptions, folder: StudyFolder, tell: Tell) -> None:
        self._began_s = time.monotonic()
        self._options = options
        self._folder = folder
        self._tell = tell
        self._found = FitFound()
        self._real: RealBench | None = None
        self._containment: Containment | None = None

    def go(self) -> FitStudy:
        """Search, and write down what came of it."""
        is_interrupted = False
        try:
            self._search()
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            if self._real is not None:
                self._real.close()
        study = self._study(is_interrupted=is_interrupted)
        self._save(study)
        if study.is_made_to_fit:
            recipe = make_fit_recipe(
                study,
                script=describe_script(study.command, folder=Path.cwd()),
                machine=describe_machine(),
            )
            write_recipe(self._folder.folder / RECIPE, recipe)
        return study

    def _search(self) -> None:
        options = self._options
        self._containment = containment = probe(
            self._folder.folder,
            allow_unsafe=options.allow_unsafe,
            share_network=options.share_network,
        )
        environment = user_environment()
        surroundings = ParentFacts(
            cwd=Path.cwd(),
            libraries=find_libraries(options.command, environment),
            environment_names=tuple(sorted(environment)),
        )
        levers = [one for one in options.levers if one.name not in options.excluded]
        subject = Subject(
            argv=options.command,
            environment=environment,
            levers={one.name: one for one in (*levers, *MEASURES)},
            surroundings=surroundings,
            budget_s=options.budget_s,
            stdin=self._keep_stdin(),
            training=options.training,
            until_s=self._began_s + options.budget_s * (1 - END_SHARE),
        )
        door = LimitedDoor(options.command, Path.cwd(), containment)
        self._real = real = RealBench(subject, self._folder, door, lambda: None)
        bench = RealFitBench(
            real,
            door,
            surroundings,
            budget_s=options.budget_s,
            tell=self._tell,
            measures=options.measures,
        )
        search = FitSearch(
            bench,
            options.levers,
            options.limit.bytes,
            origin=options.limit.origin,
            excluded=options.excluded,
            tell=lambda found: self._save(self._study(is_interrupted=False, has_ended=False)),
        )
        self._found = search.found
        search.go()

    def _keep_stdin(self) -> Path | None:
        held = read_input() if self._options.reads_input else None
        if held is None:
            return None
        path = self._folder.folder / "stdin"
        path.write_bytes(held)
        return path

    def _devices(self) -> tuple[SharedPeak, ...]:
        """Return the peak of a device, where several shall share the training."""
        peak, num_devices = self._found.peak, self._options.num_devices
        if peak is None or num_devices is None:
            return ()
        baseline = None if self._real is None else self._real.baseline
        num_blocks = None if baseline is None else baseline.facts.num_repeated_blocks
        return peaks_per_device(peak.by_category, num_devices, num_blocks=num_blocks)

    def _by_length(self) -> tuple[LengthPoint, ...]:
        """The peak over the length of rows, where they hold tokens."""
        baseline, peak = None if self._real is None else self._real.baseline, self._found.peak
        if peak is None or baseline is None or baseline.sample_unit != "tokens":
            return ()
        return peaks_by_length(peak.by_category)

    def _save(self, study: FitStudy) -> None:
        write_text(self._folder.folder / DOCUMENT, json.dumps(to_json(study)) + "\n")

    def _study(self, *, is_interrupted: bool, has_ended: bool = True) -> FitStudy:
        found, options = self._found, self._options
        baseline = None if self._real is None else self._real.baseline
        ranks = () if baseline is None else baseline.measurement.ranks
        known = {one.name: getattr(found, one.name) for one in fields(found)}
        del known["is_on_device"]
        known["limit_bytes"] = found.limit_bytes or options.limit.bytes
        known["runs"] = tuple(found.runs)
        return FitStudy(
            **known,
            fit_id=self._folder.study_id,
            command=options.command,
            started_unix_s=self._folder.started_unix_s,
            ended_unix_s=time.time() if has_ended else None,
            limit_from=options.limit.origin,
            limit_counts="device"
            if options.limit.part is not None or found.is_on_device
            else "private",
            part=options.limit.part,
            by_batch=() if found.peak is None else peaks_by_batch(found.peak.by_category),
            by_length=self._by_length(),
            devices=self._devices(),
            baseline_step_s=step_s_of(baseline) if baseline is not None and ranks else None,
            device=ranks[0].device if ranks else None,
            torch_version=ranks[0].torch_version if ranks else None,
            tier=None if self._containment is None else self._containment.tier.value,
            training=None if baseline is None else baseline.training,
            sites=None if baseline is None else baseline.sites,
            is_interrupted=is_interrupted,
        )
