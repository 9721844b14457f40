"""Runs one study: opens its folder, builds the bench, lets the search ask, and ends it.

In: `StudyOptions`. Out: a `Study`, which is on disk after each answer. `tune.search.search` decides
what is tried and why; `tune.trials.real_bench` runs the trials.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

from steptime.core.executable import NotStarted, need_executable
from steptime.isolate.child import start_contained
from steptime.isolate.left.left_folders import remove_left, temporary_folders
from steptime.isolate.left.writes import tried_connections
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment
from steptime.launch.user_command import user_environment
from steptime.tune.recipe.candidates import write_candidates
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_file import RECIPE, make_recipe, write_recipe
from steptime.tune.search.search import SearchOptions, SearchSummary, search
from steptime.tune.study.earlier_studies import find_experience, make_family
from steptime.tune.study.progress_teller import ProgressTeller
from steptime.tune.study.recorded_answers import RecordedBench
from steptime.tune.study.study_folder import (
    StudyFolder,
    hold_lock,
    left_shadows,
    open_study,
    read_input,
)
from steptime.tune.study.study_key import make_key
from steptime.tune.study_options import StudyOptions
from steptime.tune.trials.facts.libraries import find_libraries
from steptime.tune.trials.facts.tried_writes import scripts_own_writes
from steptime.tune.trials.observe_baseline import ParentFacts, SeveralTrainingsError
from steptime.tune.trials.quiet_watch import QuietWatch
from steptime.tune.trials.real_bench import RealBench, Subject
from steptime.tune.trials.trial_process import ContainedProcess, Start
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Found, Study, StudyOutcome

Tell = Callable[[StudyProgress], None]


def run_study(options: StudyOptions, *, progress: Tell) -> Study:
    """Find the fastest state that provably trains as well, or continue an earlier study.

    That is one that was cut off, or whose time did not suffice and which has more now.

    Ctrl-C ends it early: the Study says `is_interrupted` and holds what was found so far. Where
    the command fails as written, the Study has no outcome, and its first trial says how.

    Raises:
        NotStartedError: there is no such command.
        ContainmentError: nothing here keeps a trial from doing harm.
        StoreError: no folder can be made, or another study runs in this store.
    """
    environment = user_environment()
    need_executable(options.command, environment)
    cwd, stdin = Path.cwd(), read_input() if options.reads_input else None
    key = make_key(options, environment, cwd=cwd, stdin=stdin)
    folder = open_study(
        options.store,
        key,
        budget_s=options.budget_s,
        is_fresh=options.is_fresh,
        family=make_family(options.command, cwd=cwd, machine=describe_machine()),
    )
    with hold_lock(folder):
        remove_left((*temporary_folders(), *left_shadows(folder.folder.parent)))
        return _Run(options, folder, environment, cwd, stdin, progress).go()


class _Run:
    """A study while it runs."""

    def __init__(
        self,
        options: StudyOptions,
        folder: StudyFolder,
        environment: Mapping[str, str],
        cwd: Path,
        stdin: bytes | None,
        progress: Tell,
    ) -> None:
        self._options = options
        self._folder = folder
        self._environment = environment
        self._cwd = cwd
        self._stdin = stdin
        # What the first call decided by its budget stays so: the same answers lead the same way.
        self._first_s, self._granted_s = folder.budgets_s[0], folder.budgets_s[-1]
        self._teller = ProgressTeller(folder, self._granted_s, progress)
        self._containment: Containment | None = None
        self._bench: RealBench | None = None
        self._found = _NOTHING

    def go(self) -> Study:
        """Search, and write down what came of it."""
        is_interrupted = False
        try:
            self._search()
        except KeyboardInterrupt:
            is_interrupted = True
        except SeveralTrainingsError:
            shutil.rmtree(self._folder.folder, ignore_errors=True)  # it asked nothing yet
            raise
        finally:
            if self._bench is not None:
                self._bench.close()
        study = self._with_candidates(self._study(is_interrupted=is_interrupted, has_ended=True))
        try:
            # First: a study with an outcome is not resumed, so whoever kills us in between would
            # leave one that found something and has no recipe.
            if study.outcome is StudyOutcome.FASTER:
                self._write_recipe(study)
        finally:
            self._folder.save(study)
        self._forget_a_failed_command()
        self._teller.done()
        return study

    def _search(self) -> None:
        options, folder = self._options, self._folder
        self._teller.begin()
        self._containment = containment = probe(
            folder.folder,
            allow_unsafe=options.allow_unsafe,
            share_network=options.share_network,
        )
        self._teller.contain(containment)
        self._save_so_far()  # what the trials may do is on disk before the first one
        quiet = QuietWatch(self._first_s, self._teller.wait)
        self._bench = real = RealBench(self._subject(), folder, self._door(containment), quiet.wait)
        bench = RecordedBench(
            real,
            folder.answers,
            budget_s=self._granted_s,
            clock=time.monotonic,
            tell=self._teller.ask,
            adopt=real.adopt,
        )
        wanted = SearchOptions(
            levers=options.levers,
            run_steps=options.run_steps,
            budget_s=self._first_s,
            later_s=tuple(after - before for before, after in pairwise(folder.budgets_s)),
            excluded=options.excluded,
            experience=find_experience(folder),
            allows_changes=options.allows_changes,
        )
        self._found = search(bench, wanted, tell=self._keep)

    def _keep(self, summary: SearchSummary) -> None:
        """Keep what the search has found so far."""
        self._found = summary.found
        self._save_so_far()
        self._teller.answered(summary)

    def _save_so_far(self) -> None:
        # What it means is not known before the search is over.
        study = self._study(is_interrupted=False, has_ended=False)
        self._folder.save(replace(study, outcome=None))

    def _subject(self) -> Subject:
        options = self._options
        found = find_libraries(self._options.command, self._environment)
        other = self._options.other_python
        return Subject(
            argv=options.command,
            environment=self._environment,
            levers={one.name: one for one in options.levers if one.name not in options.excluded},
            surroundings=ParentFacts(
                cwd=self._cwd,
                libraries=found if other is None else {**found, "python": other.path},
                environment_names=tuple(sorted(self._environment)),
            ),
            budget_s=self._first_s,
            stdin=self._keep_stdin(),
            training=options.training,
        )

    def _keep_stdin(self) -> Path | None:
        if self._stdin is None:
            return None
        path = self._folder.folder / "stdin"
        path.write_bytes(self._stdin)
        return path

    def _door(self, containment: Containment) -> Start:
        def start(
            environment: Mapping[str, str], *, folder: Path, stdin: Path | None
        ) -> ContainedProcess | NotStarted:
            return start_contained(
                self._options.command,
                environment,
                cwd=self._cwd,
                folder=folder,
                containment=containment,
                stdin=stdin,
            )

        return start

    # -- the end

    def _with_candidates(self, study: Study) -> Study:
        """Leave a recipe for each lever that needs proof over seeds: the judge runs it."""
        baseline = self._bench.baseline if self._bench is not None else None
        if baseline is None or not self._options.allows_changes:
            return study
        made = write_candidates(
            study,
            {one.name: one.space(baseline.facts) for one in self._options.levers},
            folder=self._folder.folder,
            cwd=self._cwd,
        )
        return replace(study, not_tried=made)

    def _study(self, *, is_interrupted: bool, has_ended: bool) -> Study:
        found, containment = self._found, self._containment
        baseline = self._bench.baseline if self._bench is not None else None
        first = baseline.measurement.ranks[:1] if baseline is not None else ()
        known = {one.name: getattr(found, one.name) for one in fields(found)}
        if is_interrupted:
            known["outcome"] = None
        return Study(
            **known,
            study_id=self._folder.study_id,
            command=self._options.command,
            options=self._options.given,
            started_unix_s=self._folder.started_unix_s,
            ended_unix_s=time.time() if has_ended else None,
            tier=None if containment is None else containment.tier.value,
            tier_reasons=() if containment is None else containment.reasons,
            tier_lacks=() if containment is None else containment.lacks,
            tried_writes=scripts_own_writes(sorted((self._folder.folder / "trials").iterdir())),
            tried_connections=self._tried_connections(),
            is_interrupted=is_interrupted,
            samples_per_step=None if baseline is None else baseline.samples_per_step,
            device=first[0].device if first else None,
            torch_version=first[0].torch_version if first else None,
            budget_s=self._granted_s,
            training=None if baseline is None else baseline.training,
            sites=None if baseline is None else baseline.sites,
        )

    def _tried_connections(self) -> tuple[str, ...]:
        """What the script wanted to connect to in any trial, and could not."""
        folders = sorted((self._folder.folder / "trials").iterdir())
        return tuple(sorted({place for f in folders for place in tried_connections(f)}))

    def _forget_a_failed_command(self) -> None:
        """A command that fails as written gives no answer to keep: the next call tries it again."""
        baseline = self._bench.baseline if self._bench is not None else None
        if baseline is not None and not baseline.ending.is_well:
            for path in self._folder.answers.glob("*.json"):
                path.unlink()

    def _write_recipe(self, study: Study) -> None:
        recipe = make_recipe(
            study,
            script=describe_script(study.command, folder=self._cwd),
            machine=describe_machine(),
        )
        write_recipe(self._folder.folder / RECIPE, recipe)


_NOTHING = Found(
    outcome=None,
    recipe=(),
    speedup=None,
    noise_floor=None,
    quality=None,
    baseline_step_s=None,
    tuned_step_s=None,
    sample_unit=None,
    trials=(),
    not_tried=(),
    choices=(),
)
