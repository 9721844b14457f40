"""What a search says and draws, and what its sampler proposes and remembers."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from steptime.report.blocks.study import sweep_report as words
from steptime.report.blocks.study.sweep_report import sweep_report
from steptime.report.html.paint_html import paint_page
from steptime.report.text.paint_text import print_report
from steptime.seek.new_seeds import LOOKS
from steptime.seek.next_run import NEW_SEED
from steptime.seek.seek_answer import answer_of
from steptime.seek.sought_parameters import parse_parameters
from steptime.seek.values.seek_values import Role, SeekEnd, SeekQuestion, SeekRun

PARAMETERS = parse_parameters(["lr=1e-4..1e-1:log", "bs=16,32"])


def a_run(number, time_s, *, candidate=None, role=Role.EXPLORE, end=None) -> SeekRun:
    one = number if candidate is None else candidate
    took = time_s or 30.0
    return SeekRun(
        number=number,
        candidate=one,
        parameters={"lr": f"{(one + 1) / 1000}", "bs": "16" if one % 2 else "32"},
        seed=NEW_SEED + number,
        role=role,
        end=end or (SeekEnd.REACHED if time_s else SeekEnd.PRUNED),
        seconds=took,
        at_s=(took / 2, took),
        values=(2.0 + number / 1000, 1.0 if time_s else 1.8),
        time_to_target_s=time_s,
        machine="here",
    )


def an_answer(rival=20.0, **others):
    runs = [a_run(n, t) for n, t in enumerate((25.0, 10.0, 20.0, None, 30.0, None, 40.0, 41.0))]
    runs += [a_run(10 + n, 10.0 + n / 9, candidate=1, role=Role.NEW_SEED) for n in range(LOOKS[0])]
    if rival is not None:
        others_ = range(LOOKS[0])
        runs += [a_run(20 + n, rival + n, candidate=2, role=Role.NEW_SEED) for n in others_]
    told = {"parameters": PARAMETERS, "target": 1.0, "budget_s": 400.0, **others}
    return answer_of(SeekQuestion(**told), runs)


def report_of(found):
    return sweep_report(found, command=["train", "<b>"], next_command="steptime run -- x")


def text_of(found) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    print_report(report_of(found), console=console)
    return console.file.getvalue().rstrip()


def test_the_report_says_the_best_whether_it_holds_and_beside_whom():
    found = an_answer()
    text = text_of(found)

    assert found.new_seeds.speedup == pytest.approx(2.08, rel=0.01)
    assert "best       lr=0.002, bs=16: reaches 1 in 10.1 s" in text
    assert "holds      yes: 3 of 3 runs with new seeds reached the target" in text
    assert "x as fast (" in text
    assert "as the other candidate (lr=0.003, bs=32)" in text
    assert "2 stopped because they could not win" in text
    assert re.search(r"–  +0 of 1 ", text)  # a censored time is no number
    assert text.endswith("next       steptime run -- x")


def test_what_cannot_be_told_has_its_reason():
    text = text_of(an_answer(rival=None))

    assert "it cannot be told: the budget ended before a run with a new seed" in text


@pytest.mark.parametrize("reason", words.REASONS)
def test_every_reason_has_words_that_say_what_happened(reason):
    assert len(words.REASONS[reason].split()) > 5


def test_every_end_and_role_has_words():
    assert set(words.ENDS) == set(SeekEnd)
    assert set(words.ROLES) == set(Role)


def test_progress_says_the_best_so_far_and_the_time_left():
    runs = [a_run(1, 10.0), a_run(2, None)]

    said = words.describe_progress(runs[-1], runs, budget_s=100.0)

    assert said.startswith("run 2, lr=0.003, bs=32: was stopped, as it could not win, after 30.0 s")
    assert said.endswith("best 10.0 s · 1 min 00 s left")


def test_the_page_draws_the_frontier():
    page = paint_page(report_of(an_answer()), version="1")

    assert "&lt;b&gt;" in page
    assert "<b>&#x27;" not in page
    assert "<script" not in page
    assert page.count("<svg") == 1
    assert page.count("h0") == len(an_answer().frontier)


optuna = pytest.importorskip("optuna")


def a_sampler(**others):
    from steptime.app.search.seek_sampler import CandidateSampler

    return CandidateSampler(PARAMETERS, **others)


def test_the_default_comes_first_then_an_even_spread():
    sampler = a_sampler(default={"lr": "1e-3", "bs": "32"})
    proposed = [sampler.ask() for _ in range(5)]

    assert [number for number, _ in proposed] == [0, 1, 2, 3, 4]
    assert proposed[0][1] == {"lr": "0.001", "bs": "32"}
    logs = sorted(math.log10(float(values["lr"])) for _, values in proposed)
    assert logs[-1] - logs[0] > 1.5
    assert {values["bs"] for _, values in proposed} == {"16", "32"}


def test_candidates_of_a_finite_number_come_once_each_and_then_none():
    from steptime.app.search.seek_sampler import CandidateSampler

    sampler = CandidateSampler(parse_parameters(["bs=16,32,64", "kind=a,b"]))
    seen = []
    while (one := sampler.ask()) is not None:
        seen.append(tuple(one[1].values()))
        sampler.tell(one[0], float(len(seen)))

    assert len(seen) == len(set(seen)) == 6


def test_a_repeat_that_was_open_when_a_search_was_killed_is_not_a_candidate(tmp_path: Path):
    from steptime.app.search.seek_sampler import CandidateSampler

    parameters = parse_parameters(["bs=16,32"])
    killed = CandidateSampler(parameters, journal=tmp_path / "journal")
    for score in (1.0, 2.0):
        number, _ = killed.ask()
        killed.tell(number, score)
    killed._study.ask(killed._distributions())  # a repeat, as there is nothing else

    resumed = CandidateSampler(parameters, journal=tmp_path / "journal")
    resumed.restore({0: 1.0, 1: 2.0})
    assert resumed.ask() is None


def test_a_journal_keeps_what_was_told_and_hands_out_again_what_was_not(tmp_path):
    path = tmp_path / "journal"
    first = a_sampler(journal=path)
    (one, values), (two, open_) = first.ask(), first.ask()
    first.tell(one, 1.0)

    again = a_sampler(journal=path)
    again.restore({one: 1.0})

    assert again.ask() == (two, open_)
    number, new = again.ask()
    assert number == 2
    assert new not in (values, open_)


def test_a_candidate_that_failed_is_told_as_such():
    sampler = a_sampler()
    number, _ = sampler.ask()
    sampler.tell(number, None)

    assert sampler._study.trials[number].state is optuna.trial.TrialState.FAIL
