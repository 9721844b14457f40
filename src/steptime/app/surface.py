"""What a Python program calls beside `observe`, `load`, `compare` and `tune`.

In: the words of a command line as arguments, by the same names. Out: the values that the documents
of `--json` hold. Nothing is printed; whatever is wrong is a `SteptimeError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from steptime.app.fit.fit import FittedCommand
    from steptime.machine.values.check_values import MachineCheck
    from steptime.seek.values.seek_values import SeekAnswer, SeekRun
    from steptime.verify.values.seed_runs import TrainingVerdict

PathLike = str | os.PathLike[str]
Command = str | Sequence[PathLike]
Tell = Callable[[str], None]


def fit(
    command: Command,
    *,
    memory_limit: int | None = None,
    on: str | None = None,
    gpus: int | None = None,
    budget_s: float = 600.0,
    exclude: Sequence[str] = (),
    measure: bool = False,
    training: int | None = None,
    share_network: bool = False,
    unsafe_trials: bool = False,
    store: PathLike = ".",
    output: PathLike | None = "fit.toml",
) -> FittedCommand:
    """Say whether a command fits into memory, and make it fit, as `steptime fit` does.

    Args:
        command: its words, or one string that is split like in a shell.
        memory_limit: private memory that a process may have [bytes]; None for what is free.
        on: an accelerator whose memory is the limit, such as `H100-80GB`.
        gpus: also say what each of so many would hold that share the global batch.
        budget_s: all the time that it may take [s].
        exclude: names of levers to leave out.
        measure: of a forecast, time the operators alone.
        training: the number of the training, where the command starts several.
        share_network, unsafe_trials: what trials may do, as in the command line.
        store: the folder that holds `.steptime`.
        output: the file that takes the recipe; None to keep it in the store alone.

    Raises:
        UsageError: an argument makes no sense.
        ContainmentError: nothing here keeps a trial from doing harm.
    """
    _check_numbers(memory_limit=memory_limit, gpus=gpus, budget_s=budget_s, training=training)
    if memory_limit is not None and on is not None:
        raise UsageError("memory_limit and on both name a limit.", hint="Pass one of them.")
    from steptime.app.fit.fit import find_limit, fit_command
    from steptime.app.run.command_words import as_argv
    from steptime.app.study.tune import choose_levers
    from steptime.tune.fit.run_fit import FitOptions

    asked = FitOptions(
        command=as_argv(command, what="fit"),
        store=Path(store),
        limit=find_limit(memory_limit, on=on),
        levers=choose_levers(None, exclude),
        excluded=tuple(exclude),
        budget_s=budget_s,
        allow_unsafe=unsafe_trials,
        share_network=share_network,
        training=training,
        measures=measure,
        num_devices=gpus,
        reads_input=False,
    )
    target = None if output is None else Path(output)
    return fit_command(asked, output=target, tell=lambda *_: None)


def verify_training(
    reference: str,
    candidate: str,
    *,
    margin: str | float,
    metric: str,
    better: str = "down",
    target: float | None = None,
    seeds: int = 5,
    seed_flag: str | None = None,
    paired: bool = False,
    run_timeout_s: float = 86_400.0,
    fresh: bool = False,
    store: PathLike = ".",
    tell: Tell = lambda _: None,
) -> TrainingVerdict:
    """Judge over seeds whether a candidate trains as well, as `steptime verify training` does.

    Args:
        reference, candidate: two shell commands.
        margin: the loss that does not matter: a number, or `1%`, or `1%-of-training`.
        metric: a pattern for what a run prints, csv:FILE:COLUMN, json:FILE:KEY, or tb:TAG.
        better: `down` as of a loss, or `up`.
        target: a quality whose first crossing is timed.
        seeds: runs of each.
        seed_flag: option of the script that takes the seed; None: `{seed}`, or we seed.
        paired: runs with the same seed belong together.
        run_timeout_s: how long one run may take [s].
        fresh: do not use what an earlier call has found.
        store: the folder that holds `.steptime`.
        tell: gets a sentence for each run.

    Raises:
        UsageError: an argument makes no sense.
        RunsError, ScriptFailedError: a run has no metric, or failed.
    """
    _check_numbers(run_timeout_s=run_timeout_s)
    if seeds < 2:
        raise UsageError(f"seeds must be 2 or more, got {seeds}.")
    from steptime.app.stored.margin_text import parse_margin
    from steptime.app.verify.verify_training import SeedRuns, make_runs
    from steptime.verify.convergence.judge_training import judge_training
    from steptime.verify.values.seed_runs import TrainingQuestion

    question = TrainingQuestion(
        margin=parse_margin(str(margin)),
        is_better_down=_is_down(better),
        target=target,
        are_paired=paired,
    )
    asked = SeedRuns(
        reference=reference,
        candidate=candidate,
        num_seeds=seeds,
        metric=metric,
        store=Path(store),
        seed_flag=seed_flag,
        limit_s=run_timeout_s,
        is_fresh=fresh,
    )
    return judge_training(make_runs(asked, tell=tell), question)


def sweep(
    command: Command,
    *,
    param: Sequence[str],
    metric: str,
    target: float,
    budget_s: float,
    better: str = "down",
    default: str | None = None,
    seed_flag: str | None = None,
    recipe: PathLike | None = None,
    ray: str | None = None,
    fresh: bool = False,
    share_network: bool = False,
    unsafe_trials: bool = False,
    store: PathLike = ".",
    tell: Tell = lambda _: None,
) -> SeekAnswer:
    """Search the parameters that reach a quality in the least time, as `steptime sweep` does.

    Args:
        command: with `{name}` for each parameter.
        param: such as `lr=1e-4..1e-2:log`, `layers=2..8` or `bs=16,32,64`, one for each name.
        metric: a pattern for what a run prints, csv:FILE:COLUMN, json:FILE:KEY, or tb:TAG.
        target: the quality to reach.
        budget_s: for the whole sweep [s].
        better: `down` as of a loss, or `up`.
        default: the values now, as `lr=1e-3,bs=32`: the winner has to beat them.
        seed_flag: option of the script that takes the seed; None: `{seed}`, or we seed.
        recipe: the file of a recipe that each run has on.
        ray: the address of a Ray cluster that makes the runs; None for this machine.
        fresh: do not use what an earlier call has found.
        share_network, unsafe_trials: what runs may do, as in the command line.
        store: the folder that holds `.steptime`.
        tell: gets a sentence for each run.

    Raises:
        UsageError: an argument makes no sense.
        RunsError, ScriptFailedError: no run has the metric, or the first runs all failed.
    """
    _check_names("param", param)
    _check_numbers(budget_s=budget_s)
    if recipe is not None and not os.path.isfile(recipe):
        raise NotFoundError(f"recipe: there is no file `{os.fspath(recipe)}`.")
    from steptime.app.run.command_words import as_argv
    from steptime.app.search.search import SearchAsked, search
    from steptime.report.blocks.study.sweep_report import describe_progress
    from steptime.seek.sought_parameters import parse_default, parse_parameters
    from steptime.seek.values.seek_values import SeekQuestion

    parameters = parse_parameters(param)
    question = SeekQuestion(
        parameters=parameters,
        target=target,
        budget_s=budget_s,
        is_better_down=_is_down(better),
        default=None if default is None else parse_default(default, parameters),
    )
    asked = SearchAsked(
        question=question,
        command=as_argv(command, what="sweep"),
        metric=metric,
        store=Path(store),
        seed_flag=seed_flag,
        recipe=None if recipe is None else Path(recipe),
        ray=ray,
        is_fresh=fresh,
        share_network=share_network,
        allow_unsafe=unsafe_trials,
    )

    def heard(run: SeekRun, runs: Sequence[SeekRun], num_machines: int) -> None:
        tell(describe_progress(run, runs, budget_s=budget_s, num_machines=num_machines))

    return search(asked, heard=heard)


def doctor(
    *,
    python: str | None = None,
    data: PathLike = ".",
    store: PathLike | None = None,
    nccl_log: PathLike | None = None,
) -> tuple[MachineCheck, ...]:
    """Return what each check of this machine says, as `steptime doctor --all` does.

    Args:
        python: the interpreter with the torch of the training; None for the first on the PATH.
        data: the folder with the training data.
        store: the folder that holds `.steptime` with the last run, if one is meant.
        nccl_log: a log that was written with NCCL_DEBUG=INFO.

    Raises:
        NotFoundError: there is no such interpreter, folder, log or store.
    """
    for name, path, is_there in (
        ("data", data, os.path.isdir),
        ("nccl_log", nccl_log, os.path.isfile),
    ):
        if path is not None and not is_there(path):
            raise NotFoundError(f"{name}: `{os.fspath(path)}` is not there.")
    from steptime.app.machine.check_machine import gather_facts
    from steptime.machine.checks.run_checks import judge

    facts = gather_facts(
        python=python,
        data=Path(data),
        store=None if store is None else Path(store),
        nccl_log=None if nccl_log is None else Path(nccl_log),
    )
    return judge(facts)


def _check_numbers(**given: float | None) -> None:
    for name, value in given.items():
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} must be above 0, got {value}.")


def _check_names(name: str, given: Sequence[str]) -> None:
    if isinstance(given, str):
        raise UsageError(f"{name} takes a list of texts, got the text `{given}`.")


def _is_down(better: str) -> bool:
    if better not in ("down", "up"):
        raise UsageError(f"better must be `down` or `up`, got `{better}`.")
    return better == "down"
