"""Every lever is what some finding tries, and every finding that a lever relieves says so."""

from __future__ import annotations

import io
import math
import shlex
from dataclasses import replace

import pytest
from rich.console import Console

from report_cases import healthy
from steptime import levers
from steptime.app.run.describe_run import describe_run
from steptime.app.stored.lever_trials import find_trials
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.ailment import Ailment
from steptime.diagnose.ailments.all_ailments import AILMENTS
from steptime.diagnose.ailments.script.script_faults import SWITCHES
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis, Finding, Severity
from steptime.levers.base import Preserves
from steptime.levers.kernels.zero_rows import MIN_ZEROS
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.attention_call import AttentionCall
from steptime.measure.values.model.operator_time import TimedOperator
from steptime.measure.values.model.work import ClassCount, Count, ModuleCount
from steptime.measure.values.observations import (
    LeverUse,
    LoaderUse,
    Operators,
    PythonLoop,
    RecipeUse,
    SourceEdit,
    Switch,
    ZeroInput,
)
from steptime.report.blocks.run.finding_blocks import describe_trial
from steptime.report.document.run_document import LeverTrial
from steptime.report.text.print_run import render
from steptime.report.words.run.advice import MAX_LEVERS

RELIEVED = [row for row in AILMENTS if row.levers]


EDIT = SourceEdit(diff="", keeps="same_numbers", is_live=True)


def label(row: Ailment) -> str:
    return row.cause or (row.kind.value if row.kind else "")


def finding(row: Ailment, *, headroom: float | None = 1.3) -> Finding:
    return Finding(
        kind=row.kind,
        cause=row.cause,
        severity=Severity.WARNING,
        evidence=(),
        headroom_speedup=headroom,
        edit=EDIT,
    )


def trial(found: Finding, measurement: Measurement) -> LeverTrial:
    kind = found.kind or BottleneckKind.BALANCED
    diagnosis = Diagnosis(schema=1, run_id="r", kind=kind, findings=(found,))
    (trial,) = find_trials(measurement, diagnosis)
    return trial


def with_everything() -> Measurement:
    """A run in which every lever may help.

    It computes in two threads, with convolutions, cells, checkpoints, written-out attention and
    GELU, an input of zeros, and a loop that one call can replace; all switches are on.
    """
    sums = {"forward": 10, "backward": 20, "recomputed": 10, "macs": 20}
    convolution = ClassCount(name="convolution", num=10, flops=40)
    cell = ModuleCount(name="cell", kind="LSTMCell")
    tanh = TimedOperator(name="aten.tanh", kind="elementwise", module_kind="NewGELU", num=1)
    loader = LoaderUse(
        dataset="Subset",
        module="torch.utils.data.dataset",
        transforms=("ToTensor",),
        opens_images=True,
        pin_memory=True,
    )
    zeros = ZeroInput(rows=2708, columns=1433, zero_fraction=0.987, product_s=0.01)
    (rank,) = healthy().ranks
    loop = PythonLoop(
        code="stack_of_list",
        file="train.py",
        line=3,
        end_line=3,
        text="x = torch.stack([data[i] for i in at])",
        phase="collate",
        share_of_phase=0.5,
        edit=EDIT,
    )
    num_updates = healthy().num_optimizer_updates
    return replace(
        healthy(),
        python_loops=(loop,),
        ranks=(replace(rank, loaders=(loader,), num_exchanges=2 * num_updates),),
        count=Count(
            **sums,
            by_dtype={"fp32": 40},
            classes=(convolution,),
            modules=(cell,),
            operators=(tanh,),
        ),
        attention=(AttentionCall(way="written", backend="none", dtype="fp32", num=1, length=8),),
        operators=Operators(zero_input=zeros),
        num_backwards=2 * num_updates,
        switches=tuple(Switch(name=name, where=None) for name in SWITCHES),
    )


def where_it_is_found(row: Ailment) -> Measurement:
    """A run in which all levers of the row may help: some are for a device alone."""
    run = with_everything()
    is_of_device = row.cause == "convolution_algorithm"
    return replace(run, ranks=(replace(run.ranks[0], device="cuda"),)) if is_of_device else run


@pytest.mark.parametrize("row", RELIEVED, ids=label)
def test_a_finding_that_levers_relieve_ends_in_the_command_that_tries_just_them(
    row: Ailment,
) -> None:
    found = trial(finding(row), where_it_is_found(row))

    assert found.missing is None
    left = ("interpreter", "low_memory_states")  # the user has to name or to allow one
    alone = [name for name in row.levers if name not in left]
    assert set(found.levers) <= set(alone)
    assert len(found.levers) == min(len(alone), MAX_LEVERS)
    words = shlex.split(found.command or "")
    assert words[:3] == ["steptime", "tune", "--levers"]
    assert words[3] == ",".join(found.levers)
    assert words[4] == "--"
    assert (found.at_most_speedup, found.bound_by) == (1.3, "finding")


@pytest.mark.parametrize("row", RELIEVED, ids=label)
def test_where_the_finding_has_no_headroom_the_phases_of_its_levers_bound_it(row: Ailment) -> None:
    found = trial(finding(row, headroom=None), with_everything())

    assert found.bound_by == "phases"
    assert found.at_most_speedup is None or found.at_most_speedup >= 1
    assert describe_trial(found) in (
        "Let Steptime try this lever:",
        "Let Steptime try these levers:",
    )


@pytest.mark.parametrize("row", [row for row in AILMENTS if not row.levers], ids=label)
def test_a_finding_that_no_lever_relieves_says_so(row: Ailment) -> None:
    found = trial(finding(row), with_everything())

    assert (found.command, found.missing) == (None, "no_lever")


def test_every_lever_that_tune_may_claim_is_named_by_a_finding_or_relieves_no_kind() -> None:
    named = {name for row in AILMENTS for name in row.levers}
    relieving = {name: lever for name in levers.NAMES if (lever := levers.load(name)).relieves}

    assert named <= set(relieving)
    left = [lever for name, lever in relieving.items() if name not in named]
    assert {lever.preserves for lever in left} == {Preserves.NOTHING}


@pytest.mark.parametrize("row", RELIEVED, ids=label)
def test_no_lever_is_named_that_changes_the_training(row: Ailment) -> None:
    changing = {name for name in row.levers if levers.load(name).preserves is Preserves.NOTHING}
    others = tuple(
        LeverUse(name=name, settings={}, is_in_guest=True)
        for name in row.levers
        if name not in changing
    )
    use = RecipeUse(path="tuned.toml", study_id="s", speedup=None, levers=others)

    assert not changing & set(trial(finding(row), with_everything()).levers)
    assert trial(finding(row), replace(with_everything(), recipe=use)).levers == ()


def test_a_run_that_failed_has_nothing_to_try() -> None:
    failed = replace(healthy(), end=ProcessEnd(state=RunState.FAILED, exit_code=1))

    assert trial(finding(RELIEVED[0]), failed).missing == "failed"


def test_the_report_ends_each_finding_with_its_command() -> None:
    rows = {row.cause: row for row in RELIEVED}
    first, second = finding(rows["fetch"], headroom=2.0), finding(rows["page_faults"])
    assert first.kind is not None
    both = Diagnosis(schema=1, run_id="r", kind=first.kind, findings=(first, second))
    console = Console(file=io.StringIO(), width=100)

    run = replace(with_everything(), python_loops=())  # their edits would come first
    render(describe_run(run, both), console=console)

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    commands = [line.strip() for line in lines if "steptime tune --levers" in line]
    assert [line.split(" -- ")[0] for line in commands] == [
        f"steptime tune --levers {','.join(rows[cause].levers[:MAX_LEVERS])}"
        for cause in ("page_faults", "fetch")
    ]
    text = " ".join(" ".join(lines).split())
    assert "Let Steptime try these levers, at most 1.30x:" in text
    assert "try these levers and prove the result, at most 2.00x:" in text


def test_an_input_of_fewer_zeros_than_the_lever_needs_is_left_to_the_user() -> None:
    (row,) = [row for row in RELIEVED if row.cause == "zero_input"]
    few = ZeroInput(rows=2708, columns=1433, zero_fraction=0.92, product_s=0.01)
    run = replace(with_everything(), operators=Operators(zero_input=few))

    found = trial(finding(row), run)

    assert (found.levers, found.missing) == ((), "not_here")


def test_an_input_of_as_many_zeros_as_the_lever_needs_is_not() -> None:
    (row,) = [row for row in RELIEVED if row.cause == "zero_input"]
    for zeros, named in ((MIN_ZEROS, ("sparse_input",)), (math.nextafter(MIN_ZEROS, 0), ())):
        seen = ZeroInput(rows=2708, columns=1433, zero_fraction=zeros, product_s=0.01)
        run = replace(with_everything(), operators=Operators(zero_input=seen))

        assert trial(finding(row), run).levers == named
