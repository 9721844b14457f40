"""Finds what makes a command faster, and proves that it trains as well.

In: a command and a budget. Out: a `TunedCommand`, a study with the place of its recipe.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.run.command_words import as_argv, need_all_words
from steptime.app.run.observed_run import ObservedRun
from steptime.app.stored.load import load_run
from steptime.app.stored.page_file import try_page
from steptime.app.stored.run_listing import list_runs
from steptime.core.interval import Interval
from steptime.core.store import Run, find_store, read_value
from steptime.errors import (
    DamagedRunError,
    InterruptedByUserError,
    NotFoundError,
    RecipeError,
    SteptimeError,
    StoreError,
    UsageError,
)
from steptime.launch.user_command import user_environment
from steptime.launch.values import CommandRecord
from steptime.levers import load_all
from steptime.levers.base import Lever
from steptime.record.hidden_words import hide_words
from steptime.report.blocks.run.training_blocks import name_trainings
from steptime.report.text.plain_text import Shown
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_file import (
    RECIPE,
    check_output,
    make_recipe,
    read_recipe,
    write_recipe,
)
from steptime.tune.run_study import run_study
from steptime.tune.study_options import StudyOptions
from steptime.tune.trials.facts.other_python import OtherPython, check_other_python
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import Study, StudyOutcome
from steptime.verify.convergence.statistics import load_scipy
from steptime.verify.values import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.app.verify.prove_training import ProofOptions

INTERPRETER = "interpreter"
"""The lever that needs something from the user: another interpreter."""

Tell = Callable[[str], None]
Progress = Callable[[StudyProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TunedCommand(Shown):
    """The result of a study. `print(tuned)` shows the report of the terminal.

    Attributes:
        study: all that was tried, and what was proven.
        recipe_file: where the recipe was written, or, where it could not be proven over seeds, the
            one in the study's folder; None if there is none, it was proven to train worse, or it
            could not be written.
        failure: why it could not be proven over seeds or written; None if nothing failed.
        page: the page of the study, one HTML file; None if it could not be written.
    """

    study: Study
    recipe_file: Path | None = None
    failure: SteptimeError | None = None
    page: Path | None = None

    @property
    def outcome(self) -> StudyOutcome | None:
        """Whether it became faster; None if the study was interrupted or the command failed."""
        return self.study.outcome

    @property
    def speedup(self) -> Interval | None:
        """How much faster a step is with the recipe than as written, with its interval."""
        return self.study.speedup

    @property
    def loop_speedup(self) -> Interval | None:
        """How much faster the whole loop is, with evaluations and checkpoints; None if unknown."""
        return self.study.loop_speedup

    def render(self, console: Console) -> None:
        """Write the report to a console of rich."""
        from steptime.report.blocks.study.study_next import StudyRequest
        from steptime.report.blocks.study.study_report import study_report
        from steptime.report.text.paint_text import print_report

        recipe = None if self.recipe_file is None else str(self.recipe_file)
        report = study_report(self.study, asked=StudyRequest(recipe=recipe))
        print_report(report, console=console)

    def __repr__(self) -> str:
        outcome = "no outcome" if self.outcome is None else self.outcome.value
        return f"<TunedCommand {self.study.study_id}: {outcome}>"


def tune(
    command: str | Sequence[str | os.PathLike[str]] | ObservedRun,
    *,
    budget_s: float = 600.0,
    levers: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    run_steps: int | None = None,
    store: str | os.PathLike[str] = ".",
    output: str | os.PathLike[str] | None = "tuned.toml",
    progress: Progress | None = None,
) -> TunedCommand:
    """Try levers on a training command in trials; keep what is faster and trains as well.

    The trials run where they can do no harm. Ctrl-C ends the study early: what was found until
    then is returned, and the same call continues the study.

    Args:
        command: the words of the command, or one string that is split like in a shell; or a run of
            it. Of a command that starts several trainings, name the one to tune by a run:
            `tune(steptime.load("last").trainings[1])`.
        budget_s: time that the whole study may take [s].
        levers: names of the only levers to try; None for all. `steptime levers` lists them.
        exclude: names of levers to leave out.
        run_steps: how many steps the real run has; decides whether one-off costs are earned.
        store: the folder that holds `.steptime`.
        output: the file that takes the recipe; None to keep it only in the study's folder.
        progress: gets a value for each thing that happens.

    Raises:
        NotFoundError: there is no such command.
        UsageError: one of the names is not a lever; or the command starts several trainings, and
            none was named.
        ContainmentError: nothing here keeps a trial from doing harm.
        RecipeError: `output` exists and is not a recipe.

    Example:
        >>> tuned = steptime.tune("python train.py", budget_s=300)  # doctest: +SKIP
        >>> tuned.outcome, tuned.recipe_file  # doctest: +SKIP
        (<StudyOutcome.FASTER: 'faster'>, PosixPath('tuned.toml'))
    """
    for name, names in (("levers", levers), ("exclude", exclude)):
        if isinstance(names, str):
            right = [part.strip() for part in names.split(",")]
            raise UsageError(f"{name} takes a list of names, got a text.", hint=f"Pass: {right}")
    if not 0 < budget_s < float("inf"):
        raise UsageError(f"budget_s must be above 0, got {budget_s}.")
    if run_steps is not None and run_steps < 1:
        raise UsageError(f"run_steps must be 1 or more, got {run_steps}.")
    asked = StudyOptions(
        command=_words_of(command),
        store=Path(store),
        levers=choose_levers(levers, exclude),
        excluded=tuple(exclude),
        run_steps=run_steps,
        budget_s=budget_s,
        output=None if output is None else Path(output),
        reads_input=False,
        training=_number_of(command),
    )
    return tune_command(asked, progress=progress or _ignore)


def other_python(given: str, command: tuple[str, ...]) -> OtherPython:
    """Return the interpreter that a study tries as one more arm.

    Raises:
        UsageError: it cannot take the place of the command's.
    """
    return check_other_python(given, command, user_environment())


def _words_of(command: str | Sequence[str | os.PathLike[str]] | ObservedRun) -> tuple[str, ...]:
    if isinstance(command, ObservedRun):
        return need_all_words(command.measurement.command)
    return as_argv(command, what="tune")


def _number_of(command: str | Sequence[str | os.PathLike[str]] | ObservedRun) -> int | None:
    """Return which of several trainings is meant."""
    own = command.measurement.training if isinstance(command, ObservedRun) else None
    return None if own is None or own.is_alone else own.number


def tune_command(
    asked: StudyOptions,
    *,
    progress: Progress,
    proof: ProofOptions | None = None,
    tell: Tell = lambda _: None,
) -> TunedCommand:
    """Run the study, and write its recipe where the options say.

    Ctrl-C after the search, as during a proof over seeds, loses nothing that was found.

    Raises:
        SteptimeError: the study cannot be run.
    """
    if proof is not None:
        load_scipy()
    if asked.output is not None:
        check_output(asked.output)
    if asked.training is None:
        _check_is_alone(asked)
    study = run_study(asked, progress=progress)
    try:
        if proof is not None and study.outcome is StudyOutcome.FASTER and study.recipe:
            study = _proven(study, proof, store=asked.store, tell=tell)
        tuned = _with_recipe(study, asked.output)
    except RecipeError as error:
        tuned = TunedCommand(study=study, failure=error)
    except SteptimeError as error:  # what the study found is told all the same
        tuned = TunedCommand(study=study, failure=error, recipe_file=_kept(study, asked.store))
    except KeyboardInterrupt:
        stopped = InterruptedByUserError("interrupted after the search, whose result stands.")
        tuned = TunedCommand(study=study, failure=stopped, recipe_file=_kept(study, asked.store))
    return replace(tuned, page=_write_page(tuned, store=asked.store))


def _proven(study: Study, proof: ProofOptions, *, store: Path, tell: Tell) -> Study:
    """Judge the recipe over seeds.

    Raises:
        StoreError: the study's folder is gone.
    """
    from steptime.app.study.study_page import folder_of
    from steptime.app.verify.prove_training import prove_study

    folder = folder_of(study, store=store)
    if folder is None:
        raise StoreError(
            f"the folder of study {study.study_id} is gone, so its recipe cannot be proven.",
            hint="Run `steptime tune --prove` again.",
        )
    return prove_study(study, folder, proof, store=store, tell=tell)


def _with_recipe(study: Study, output: Path | None) -> TunedCommand:
    """Write the recipe where the user wants it, if one was proven."""
    if study.outcome is not StudyOutcome.FASTER or not study.recipe or output is None:
        return TunedCommand(study=study)
    if study.seeds is not None and study.seeds.outcome is Outcome.FAIL:
        return TunedCommand(study=study)  # it stays in the study's folder, with what it costs
    recipe = make_recipe(
        study,
        script=describe_script(study.command, folder=Path.cwd()),
        machine=describe_machine(),
    )
    write_recipe(output, recipe)
    return TunedCommand(study=study, recipe_file=output)


def _kept(study: Study, store: Path) -> Path | None:
    """Return the recipe in the study's folder."""
    from steptime.app.study.study_page import folder_of

    folder = folder_of(study, store=store)
    path = None if folder is None else folder / RECIPE
    return path if path is not None and path.is_file() else None


def _write_page(tuned: TunedCommand, *, store: Path) -> Path | None:
    """Write the page beside the recipe in the study's folder."""

    def write() -> Path | None:
        from steptime.app.study.study_page import folder_of, write_study_page

        folder = folder_of(tuned.study, store=store)
        return folder and write_study_page(tuned.study, folder, recipe=tuned.recipe_file)

    return try_page(write)


def _check_is_alone(asked: StudyOptions) -> None:
    """Refuse a command that is known to start several trainings; a trial would find out late.

    Raises:
        UsageError: its last run here had several.
    """
    with suppress(NotFoundError, StoreError, DamagedRunError, OSError):
        store = find_store(asked.store)
        last = next(
            (row for row in list_runs(store) if row.command == hide_words(asked.command)), None
        )
        if last is None or (last.num_trainings or 0) < 2:
            return
        run = Run(run_id=last.run_id, folder=store / "runs" / last.run_id)
        record = read_value(run, "command.json", CommandRecord)
        if record.cwd != str(Path.cwd()):
            return
        raise UsageError(
            f"the command started {last.num_trainings} trainings in run {last.run_id}: "
            f"{name_trainings(load_run(run).parts)}.",
            hint="Say which one to tune: --training N",
        )


def choose_levers(
    only: Sequence[str] | None,
    exclude: Sequence[str],
    *,
    names: tuple[str, str] = ("levers", "exclude"),
    tell: Tell = lambda _: None,
    with_interpreter: bool = False,
) -> tuple[Lever, ...]:
    """Return the levers to hand to the search, which itself says which of them are left out.

    Args:
        only: names of those that may be tried; None for all.
        exclude: names of those to leave out.
        names: what the two are called in messages.
        tell: gets a sentence about a lever that cannot be loaded.
        with_interpreter: the user named another interpreter, so that it is tried whatever `only`
            names; without one, the lever is there only if it is named.

    Raises:
        UsageError: one of the names is not a lever, or none is left.
    """
    levers = load_all(tell)
    known = [lever.name for lever in levers]
    for flag, given in zip(names, (only or (), exclude), strict=True):
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(known)}."
                raise UsageError(f"{flag}: there is no lever `{name}`.", hint=hint)
    wanted = {name for name in known if name != INTERPRETER} if only is None else set(only)
    wanted |= {INTERPRETER} if with_interpreter else set()
    if only is not None and wanted.issubset(exclude):
        raise UsageError(
            f"no lever is left to try: {names[0]} without {names[1]} names none.",
            hint="`steptime levers` lists them.",
        )
    return tuple(lever for lever in levers if lever.name in wanted)


def with_recipe(only: tuple[str, ...] | None, recipe: str | None) -> tuple[str, ...] | None:
    """Return the names of the levers to try, with those of a recipe if one is given.

    Another interpreter is tried only where the user names one.

    Raises:
        UsageError: the recipe would add nothing, because all levers are tried.
        RecipeError: it cannot be read.
    """
    if recipe is None:
        return only
    if only is None:
        raise UsageError(
            "--recipe needs --levers: without it, all levers are tried.",
            hint="Or leave --recipe out.",
        )
    found = [one.name for one in read_recipe(Path(recipe)).levers if one.name != INTERPRETER]
    return (*found, *(name for name in only if name not in found))


def _ignore(_: StudyProgress) -> None:
    """Ignore the progress, because nobody asked for it."""
