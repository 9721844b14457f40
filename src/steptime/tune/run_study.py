"""Runs one study: opens its folder, builds the bench, lets the search ask, and ends it.

In: `StudyOptions`. Out: a `Study`, which is on disk after each answer. `tune.search.search` decides
what is tried and why; `tune.trials.real_bench` runs the trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from steptime.core.executable import NotStarted, find_executable
from steptime.errors import NotFoundError
from steptime.isolate.child import start_contained
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment
from steptime.isolate.writes import tried_writes
from steptime.launch.user_command import user_environment
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.search.search import SearchOptions, SearchSummary, search
from steptime.tune.search.search_notes import Found
from steptime.tune.study.progress_teller import ProgressTeller
from steptime.tune.study.recorded_answers import RecordedBench
from steptime.tune.study.study_folder import StudyFolder, hold_lock, open_study, read_input
from steptime.tune.study.study_key import make_key
from steptime.tune.study_options import StudyOptions
from steptime.tune.trials.libraries import find_libraries
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.quiet_watch import QuietWatch
from steptime.tune.trials.real_bench import Doors, RealBench, Subject
from steptime.tune.trials.trial_process import ContainedProcess, Start
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Study, StudyOutcome

RECIPE = "tuned.toml"
_MAX_WRITES = 200

Tell = Callable[[StudyProgress], None]


def run_study(options: StudyOptions, *, progress: Tell) -> Study:
    """Find the fastest state that provably trains as well, or resume an unfinished study.

    Ctrl-C ends it early: the Study says `is_interrupted` and holds what was found so far. Where
    the command fails as written, the Study has no outcome, and its first trial says how.

    Raises:
        NotFoundError: there is no such command.
        ContainmentError: nothing here keeps a trial from doing harm.
        StoreError: no folder can be made, or another study runs in this store.
    """
    environment = user_environment()
    path = find_executable(options.command[0], environment)
    if isinstance(path, NotStarted):
        raise NotFoundError(
            f"the command `{options.command[0]}` {path.reason}.", hint="Check the name, and PATH."
        )
    cwd, stdin = Path.cwd(), read_input() if options.reads_input else None
    key = make_key(options, environment, cwd=cwd, stdin=stdin)
    folder = open_study(options.store, key, is_fresh=options.is_fresh)
    with hold_lock(folder):
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
        self._teller = ProgressTeller(folder, options.budget_s, progress)
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
        finally:
            if self._bench is not None:
                self._bench.close()
        study = self._study(is_interrupted=is_interrupted, has_ended=True)
        self._folder.save(study)
        self._forget_a_failed_command()
        if study.outcome is StudyOutcome.FASTER:
            self._write_recipe(study)
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
        quiet = QuietWatch(options.budget_s, self._teller.wait)
        self._bench = real = RealBench(
            self._subject(), folder, self._doors(containment), quiet.wait
        )
        bench = RecordedBench(
            real,
            folder.answers,
            budget_s=options.budget_s,
            clock=time.monotonic,
            tell=self._teller.ask,
            adopt=real.adopt,
        )
        wanted = SearchOptions(
            levers=options.levers,
            run_steps=options.run_steps,
            budget_s=options.budget_s,
            excluded=options.excluded,
        )
        self._found = search(bench, wanted, tell=self._keep)

    def _keep(self, summary: SearchSummary) -> None:
        """Keep what the search has found so far."""
        self._found = summary.found
        # What it means is not known before the search is over.
        study = self._study(is_interrupted=False, has_ended=False)
        self._folder.save(replace(study, outcome=None))
        self._teller.answered(summary)

    def _subject(self) -> Subject:
        options = self._options
        return Subject(
            argv=options.command,
            environment=self._environment,
            levers={lever.name: lever for lever in options.levers},
            surroundings=ParentFacts(
                cwd=self._cwd,
                libraries=find_libraries(options.command, self._environment),
                environment_names=tuple(sorted(self._environment)),
            ),
            budget_s=options.budget_s,
            stdin=self._keep_stdin(),
        )

    def _keep_stdin(self) -> Path | None:
        if self._stdin is None:
            return None
        path = self._folder.folder / "stdin"
        path.write_bytes(self._stdin)
        return path

    def _doors(self, containment: Containment) -> Doors:
        own = self._door(containment)
        if not containment.has_own_network:
            return Doors(own=own)
        return Doors(own=own, shared=self._door(replace(containment, has_own_network=False)))

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

    def _study(self, *, is_interrupted: bool, has_ended: bool) -> Study:
        found, containment = self._found, self._containment
        baseline = self._bench.baseline if self._bench is not None else None
        first = baseline.measurement.ranks[:1] if baseline is not None else ()
        return Study(
            study_id=self._folder.study_id,
            command=self._options.command,
            started_unix_s=self._folder.started_unix_s,
            ended_unix_s=time.time() if has_ended else None,
            tier=None if containment is None else containment.tier.value,
            tier_reasons=() if containment is None else containment.reasons,
            outcome=None if is_interrupted else found.outcome,
            recipe=found.recipe,
            speedup=found.speedup,
            noise_floor=found.noise_floor,
            quality=found.quality,
            baseline_step_s=found.baseline_step_s,
            tuned_step_s=found.tuned_step_s,
            sample_unit=found.sample_unit,
            trials=found.trials,
            not_tried=found.not_tried,
            choices=found.choices,
            tried_writes=self._tried_writes(),
            break_even_steps=found.break_even_steps,
            is_interrupted=is_interrupted,
            samples_per_step=None if baseline is None else baseline.samples_per_step,
            device=first[0].device if first else None,
            torch_version=first[0].torch_version if first else None,
            reason=found.reason,
        )

    def _tried_writes(self) -> tuple[str, ...]:
        """What any trial tried to write."""
        folders = sorted((self._folder.folder / "trials").iterdir())
        return tuple(sorted({path for f in folders for path in tried_writes(f)}))[:_MAX_WRITES]

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
