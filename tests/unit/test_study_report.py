from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.report.blocks.fit.batch_report import REASONS as BATCH_REASONS
from steptime.report.blocks.study.story_blocks import CHOICES
from steptime.report.blocks.study.study_next import StudyRequest, next_act
from steptime.report.blocks.study.study_report import study_report
from steptime.report.blocks.study.trial_blocks import scale_for
from steptime.report.text.paint_text import drawn_reach as drawn
from steptime.report.text.paint_text import print_report
from steptime.report.text.progress_text import NOTES, PHASES, describe_ended, live_line
from steptime.report.words.fit.fit_words import FIT_REASONS
from steptime.report.words.study import study_words as words
from steptime.tune.values.study_progress import StudyProgress
from steptime.tune.values.study_values import (
    Choice,
    FewPairs,
    NotTried,
    Study,
    TrialEnd,
)
from steptime.verify.values import Outcome, QualityCheck, Verdict
from study_cases import (
    BF16,
    CASES,
    COMPILE,
    FUSED,
    UNSURE,
    failed_baseline,
    faster,
    interrupted,
    many_settings,
    mixed,
    on,
    speedup,
    too_noisy,
    trial,
)

ASKED = StudyRequest(recipe="tuned.toml", budget_s=600.0)


def show(study: Study, *, width: int = 80, asked: StudyRequest = ASKED, **options: Any) -> str:
    file = io.StringIO()
    report = study_report(study, asked=asked)
    print_report(report, console=Console(file=file, width=width, **options))
    return file.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_the_reports_are_golden(name: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"study_{name}.txt", show(CASES[name](), width=100))


def screen(width: int) -> str:
    """The table, and the live line of each row while it is tried, on a terminal of this width."""
    study = many_settings()
    best, states = study.trials[2], [one.state for one in study.trials[1:]]
    table = [line for line in show(study, width=width).split("\n\n") if line.startswith("trial  ")]
    base = StudyProgress(
        study_id=study.study_id,
        phase="process",
        trial=7,
        num_trials=16,
        best=best.speedup,
        best_state=best.state,
        left_s=252.4,
    )
    return "\n".join([
        *table, "", *(live_line(replace(base, state=state), width=width) for state in states), "",
    ])  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_is_golden(width: int, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"study_screen_{width}.txt", screen(width))


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120])
def test_two_settings_never_look_alike_and_best_and_time_left_stay(width: int) -> None:
    table, lines = (part.splitlines() for part in screen(width).split("\n\n"))
    names = [re.split(r"  +", row)[0] for row in table]

    assert len(set(names)) == len(names)
    assert len(set(lines)) == len(lines)
    assert all("best 1.11x" in line and line.endswith("4 min 12 s left") for line in lines)
    assert max(map(len, [*table, *lines])) <= width


def test_the_headline_is_the_loops_and_the_steps_stands_beside_it() -> None:
    text = " ".join(show(faster()).split())
    alone = " ".join(show(replace(faster(), loop_speedup=None)).split())
    equal = show(replace(faster(), loop_speedup=faster().speedup))

    assert "faster: 1.31x from the first step to the last, 95 % interval 1.26x to 1.35x" in text
    assert "step 1.52x, 95 % interval 1.47x to 1.58x, 8 pairs" in text
    assert "faster: 1.52x in each step, 95 % interval 1.47x to 1.58x" in alone
    assert "step  " not in equal


def test_an_epoch_that_no_trial_saw_end_bounds_the_claim() -> None:
    within = Choice(code="within_epoch", facts={"steps": 57, "start_s": 2.438})
    text = " ".join(show(replace(faster(), choices=(within,))).split())

    assert "faster: 1.31x within an epoch, 95 % interval 1.26x to 1.35x" in text
    assert "epochs An epoch has 57 steps, and no trial saw its end. Starting it took 2.44 s" in text


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_but_the_command_is_wider_than_the_page(name: str, width: int) -> None:
    lines = show(CASES[name](), width=width).splitlines()
    assert max(map(len, lines[:-1])) <= min(width, 100)


@pytest.mark.parametrize("name", CASES)
def test_the_last_line_is_a_command(name: str) -> None:
    assert show(CASES[name]()).splitlines()[-1].strip().startswith("steptime ")


def test_a_recipe_is_to_be_trained_with() -> None:
    text = show(faster(), asked=StudyRequest(recipe="my recipes/a.toml"))
    assert text.splitlines()[-1].strip() == (
        "steptime run --recipe 'my recipes/a.toml' -- python train.py --lr 3e-4"
    )


def test_an_interrupted_study_goes_on_by_the_same_command() -> None:
    options = ("--fresh", "--exclude", "compile", "--budget", "20m")
    study = replace(interrupted(), options=options)
    last = show(study, asked=StudyRequest(budget_s=1200.0)).splitlines()[-1].strip()
    assert last == "steptime tune --exclude compile --budget 20m -- python train.py --lr 3e-4"


@pytest.mark.parametrize("given", [("--budget", "20m"), ("--budget=20m",)])
def test_too_noisy_asks_for_more_time_than_was_given(given: tuple[str, ...]) -> None:
    study = replace(too_noisy(), options=(*given, "--exclude", "compile"))
    last = show(study, asked=StudyRequest(budget_s=1200.0)).splitlines()[-1].strip()
    assert last == "steptime tune --exclude compile --budget 40m -- python train.py --lr 3e-4"


def test_a_command_that_wanted_the_network_is_offered_it() -> None:
    study = replace(failed_baseline(), tried_connections=("127.0.0.1 port 8000",))

    text = show(study, width=100)
    shared = show(replace(study, tier_lacks=("network",)), width=100)

    assert "It wanted to reach 127.0.0.1 port 8000, which no trial may." in text
    assert text.splitlines()[-1].strip() == (
        "steptime tune --share-network -- python train.py --lr 3e-4"
    )
    assert "each trial sends too (--share-network)" in " ".join(shared.split())
    assert shared.splitlines()[-1].strip() == "steptime run -- python train.py --lr 3e-4"


def test_a_command_nobody_can_copy_is_not_repeated() -> None:
    study = replace(faster(), command=("bash", "-c", "a\nb"))
    assert show(study).splitlines()[-1].strip() == "steptime run --recipe tuned.toml -- ..."


def test_what_a_script_or_lever_says_is_never_interpreted() -> None:
    odd = "[red]x[/red] \x1b[2J"
    study = replace(
        mixed(),
        tier_reasons=(odd,),
        tried_writes=(odd,),
        not_tried=(NotTried(name="x", reason="y", text=odd),),
        trials=(trial(1, BF16, end=TrialEnd.FAILED, reason="lever_failed", facts={"error": odd}),),
    )
    text = show(study, force_terminal=True, no_color=True)
    assert text.count(r"[red]x[/red] \x1b[2J") >= 4
    assert "\x1b[2J" not in text


def test_a_file_that_takes_ascii_only_gets_ascii_only() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    print_report(study_report(mixed(), asked=ASKED), console=Console(file=file, width=100))
    file.flush()
    assert b"|o|" in raw.getvalue() or b"|-o" in raw.getvalue()


def test_many_trials_leave_room_for_what_decided_something() -> None:
    dull = [trial(n, FUSED, speedup=speedup(1, 0.99, 1.01), reason="no_gain") for n in range(1, 60)]
    study = replace(faster(), trials=(*faster().trials, *dull))
    text = show(study)
    assert "40 more trials: steptime show 20261120-101500-3fa2" in text
    assert "proof" in text


def test_steps_per_second_need_a_known_size_of_a_batch() -> None:
    assert "samples per s" not in show(replace(faster(), samples_per_step=None))


# -- drawings


def cells(*speedups: Interval, width: int = 21, ascii_only: bool = True) -> list[str]:
    scale = scale_for(speedups)
    return [drawn(scale.reach(one), width, ascii_only=ascii_only) for one in speedups]


def test_twice_as_fast_and_half_as_fast_are_equally_far_from_no_change() -> None:
    assert cells(speedup(2, 2, 2), speedup(0.5, 0.5, 0.5)) == [
        "          :         o",
        "o         :          ",
    ]


def test_an_interval_has_its_ends_and_its_estimate() -> None:
    (drawn,) = cells(speedup(1.2, 1.1, 1.4), width=31, ascii_only=False)
    assert re.fullmatch(r" +│ +├─+●─+┤", drawn)


def test_an_interval_beyond_all_measure_ends_at_the_edge() -> None:
    (drawn,) = cells(speedup(1.0, 0.0, 99.0))
    assert drawn == "|---------o---------|"


def test_a_small_effect_looks_small() -> None:
    (drawn,) = cells(speedup(1.002, 1.001, 1.003))
    assert drawn.index("o") in (10, 11)
    assert len(drawn.strip()) <= 2


# -- words


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "x"),
        ({"dtype": "bf16"}, "x bf16"),
        ({"count": 2}, "x 2"),
        ({"is_on": True}, "x is_on"),
        ({"num_workers": 2, "pin_memory": True}, "x num_workers=2 pin_memory"),
        ({"num_workers": 2, "pin_memory": False}, "x num_workers=2 pin_memory=off"),
        ({"diff": "-a\n+b\n"}, "x"),
        ({"limit_bytes": 4_990_000_000}, "x"),
    ],
)
def test_a_lever_is_named_with_its_settings(settings: dict[str, Any], text: str) -> None:
    assert words.describe_applied(on("x", **settings)) == text


def test_a_bound_that_is_none_is_not_given_as_one() -> None:
    bounds = {"x": 1.25, "y": 100.0}
    items = [
        NotTried(
            name=name, reason="no_time", evidence=(Evidence(name="headroom", value=most, unit="x"),)
        )
        for name, most in bounds.items()
    ]
    assert words.describe_not_tried(items) == [
        "x: there was no time left; it could give at most 25.0 %",
        "y: there was no time left; it acts on all of a step",
    ]


def test_unknown_words_are_shown_as_they_are() -> None:
    items = [NotTried(name=name, reason="moon_phase") for name in "xy"]
    assert words.describe_not_tried(items) == ["x, y: moon_phase"]
    odd = trial(1, BF16, reason="gremlin", facts={"n": 3})
    assert words.describe_reason(odd) == "gremlin, n 3"
    assert words.describe_mark(odd) == "not kept"
    assert words.describe_check(QualityCheck(name="zeal", outcome=Outcome.FAIL)) == "zeal: failed"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"exit_code": 7, "last_line": "boom"}, "the script ended with exit code 7: boom"),
        ({"exit_code": 7}, "the script ended with exit code 7"),
        ({}, "the script ended with an error"),
    ],
)
def test_how_a_script_ended_is_told_as_far_as_it_is_known(facts: dict[str, Any], text: str) -> None:
    failed = trial(0, end=TrialEnd.FAILED, kind="observe", reason="exit_code", facts=facts)
    assert words.describe_reason(failed) == text


def test_a_verdict_without_checks_still_says_that_it_is_none() -> None:
    unsure = Verdict(outcome=Outcome.INCONCLUSIVE, level=None)
    judged = trial(1, BF16, kind="quality", quality=unsure)
    assert words.describe_reason(judged) == "the quality of its training could not be judged"
    assert words.describe_quality(unsure) == "training stays as good: not certain"


TUNE = Path(words.__file__).parents[3] / "tune"


def said_in(*patterns: str) -> set[str]:
    source = "".join(path.read_text("utf-8") for path in sorted(TUNE.rglob("*.py")))
    return {word for pattern in patterns for word in re.findall(pattern, source)}


def test_every_reason_of_a_study_has_words() -> None:
    known = {*words.REASONS, *words.BARE_REASONS, *words.NOT_TRIED, *words.OUTCOME_REASONS}
    known |= {*FIT_REASONS, *BATCH_REASONS}
    found = said_in(r'reason="(\w+)"', r'reason = "(\w+)"', r'reason or "(\w+)"')
    assert len(found) > 15
    # An outcome of its own, and a sentence of the lever's.
    assert found - known - {"nothing_helps", "does_not_apply"} == set()


def test_every_choice_of_the_search_has_a_sentence() -> None:
    found = said_in(r'choose\(\s*"(\w+)"')
    assert len(found) > 15
    assert found <= set(CHOICES)


def test_every_check_has_words() -> None:
    verify = TUNE.parent / "verify"
    source = "".join(path.read_text("utf-8") for path in sorted(verify.glob("*.py")))
    found = set(re.findall(r'(?:_say\(|_fail\(|_envelope\(|_cannot_tell\(|name=)"(\w+)"', source))
    counts = set(re.findall(r'"(\w+)",\s+lambda', source))
    assert len(found | counts) > 8
    assert found | counts <= set(words.CHECKS)


def test_every_phase_and_note_of_the_progress_has_words() -> None:
    notes = said_in(r'Note\(code="(\w+)"')
    assert notes
    assert notes <= set(NOTES)
    assert said_in(r'phase="(\w+)"') - {"combining"} <= set(PHASES)


def test_a_study_under_way_has_no_end_and_no_tier_yet() -> None:
    text = show(replace(interrupted(), tier=None, ended_unix_s=None, is_interrupted=False))
    assert "3 trials · cpu" in text
    assert "isolated" not in text
    assert "undecided: the best so far is autocast bf16" in text


def test_a_diverged_trial_is_refused() -> None:
    diverged = trial(1, BF16, end=TrialEnd.DIVERGED, reason="not_finite")
    text = show(replace(faster(), trials=(*faster().trials, diverged)))
    assert "refused    autocast bf16: the loss was no longer a finite number" in text


def test_a_verdict_answers_first_and_lists_its_checks_in_the_details() -> None:
    checks = tuple(QualityCheck(name=f"c{n}", outcome=Outcome.PASS) for n in range(9))
    verdict = Verdict(outcome=Outcome.PASS, level="L0", checks=checks)
    answer = "training stays as good: yes (9 checks, details below)"
    assert words.describe_quality(verdict) == answer
    names = " · ".join(f"c{n}" for n in range(9))
    assert words.describe_checks(verdict) == f"all 9 passed, up to level L0: {names}"


def test_a_check_that_failed_comes_first_in_the_details() -> None:
    checks = (
        QualityCheck(name="batches", outcome=Outcome.PASS),
        QualityCheck(name="moves", outcome=Outcome.FAIL),
    )
    verdict = Verdict(outcome=Outcome.FAIL, level=None, checks=checks)
    answer = "training stays as good: no (2 checks, details below)"
    assert words.describe_quality(verdict) == answer
    details = "1 of 2 passed: updates change the weights: failed · the same batches"
    assert words.describe_checks(verdict) == details


def test_what_cannot_be_told_says_why() -> None:
    assert words.describe_check(UNSURE.checks[0]) == (
        "losses in lockstep: not certain (too few steps)"
    )


def test_how_far_the_losses_could_be_foreseen_is_told_where_they_are_alike_too() -> None:
    detail = "over 3 of 20 steps; further on chance alone moves the losses by 144%"
    check = QualityCheck(
        name="lockstep", outcome=Outcome.PASS, estimate=0.05, limit=0.2, n=3, detail=detail
    )

    assert words.describe_check(check) == f"losses in lockstep: 0.05 (at most 0.2), {detail}"


def test_the_noise_is_a_comparison_of_the_command_with_itself() -> None:
    assert words.describe_state(()) == "as written, repeated"


def test_a_fact_is_shown_by_its_type() -> None:
    assert words.describe_study_facts(
        {"headroom": "unknown", "one_off_s": 30, "reason": "moon"}
    ) == {
        "headroom": "unknown",
        "one_off_s": "30.0 s",
        "reason": "moon",
    }


def test_how_many_trials_there_will_be_may_not_be_known() -> None:
    progress = StudyProgress(study_id="x", phase="probe", trial=0)
    assert live_line(progress, width=80) == (
        "finding out how trials can be contained · trial 0 · 0 s left"
    )
    told = describe_ended(progress, trial(0, kind="observe"))
    assert told == "trial 0 · the command as written · 0 s left"


# -- a command that cannot be tried


@pytest.mark.parametrize(
    ("process", "command"),
    [("python b.py --lr 1", "python b.py --lr 1"), ("bash", "python train.py")],
)
def test_a_training_that_outlives_its_command_is_refused_with_the_way_out(
    process: str, command: str
) -> None:
    observed = failed_baseline().trials[0]
    trials = (replace(observed, reason="outlived", facts={"process": process}),)
    text = show(replace(failed_baseline(), outcome=None, trials=trials))
    said = " ".join(text.split())
    assert "the command cannot be tried: the command returned while its training went on" in said
    assert f"(process {process})" in said
    assert "without nohup, `&` or a launcher that detaches it" in said
    assert text.splitlines()[-1].strip() == f"steptime tune -- {command}"


def test_what_each_lever_of_a_bundle_gives_is_said_or_that_it_was_not_told_apart() -> None:
    both, more = (BF16, FUSED), (BF16, FUSED, COMPILE)
    few = FewPairs(median=1.07, n=4)
    trials = (
        trial(0, kind="observe"),
        trial(1, *more, reference=(FUSED, COMPILE), speedup=speedup(1.3, 1.2, 1.4)),
        trial(2, *more, kind="process", reference=(BF16, FUSED), few=few),
    )
    text = show(replace(faster(), recipe=more, trials=trials), width=120)
    assert "autocast bf16  1.30x, 95 % interval 1.20x to 1.40x, 12 pairs beside the others" in text
    assert "fused_optimizer fused  its own gain is not known" in text
    assert "1.07x beside the others in 4 pairs, too few for an interval" in text

    text = show(replace(faster(), recipe=both, trials=trials[:2]), width=120)
    assert "autocast bf16  1.30x" in text


def test_where_pyg_refuses_to_sample_the_next_act_names_the_loaders_that_do_not():
    study, line = failed_baseline(), "requires either 'pyg-lib' or 'torch-sparse'"
    facts = {"exit_code": 1, "last_line": f"ImportError: 'NeighborSampler' {line}"}
    study = replace(study, trials=(replace(study.trials[0], facts=facts),))

    sentence, command = next_act(study, StudyRequest())

    assert "steptime.graph.loader" in sentence
    assert command.startswith("steptime tune -- ")
