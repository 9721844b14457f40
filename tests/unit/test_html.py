"""The text and tables of the page; nothing here needs the plotting library."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from page_cases import HOSTILE, PAGES, gpt, hostile, make_devices, make_shift, make_stall, two_ranks
from report_cases import CASES, crowded, healthy
from steptime.app.run.describe_run import describe_run
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.script.shifted import BY_CHANGE
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis
from steptime.measure.values.measurement import Phase
from steptime.measure.values.model.work import Completeness
from steptime.measure.values.observations import PythonLoop, ScriptError, SourceEdit
from steptime.measure.values.over_time import RunSeries, StepPoint
from steptime.report.blocks.run.finding_blocks import scaled_sites
from steptime.report.blocks.run.run_report import PageFacts
from steptime.report.document.run_document import RecipeGain
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.html.run_page import render_page
from steptime.report.words.run.run_words import CHANGES
from unit.builders import make_measurement


class _Parser(HTMLParser):
    """Elements, attributes and text as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(markup: str) -> _Parser:
    parser = _Parser()
    parser.feed(markup)
    parser.close()
    return parser


def page_of(facts: PageFacts) -> str:
    return render_page(facts)


def bare(measurement, **more) -> PageFacts:
    return PageFacts(
        document=describe_run(measurement, diagnose(measurement)),
        record=None,
        series=RunSeries(),
        **more,
    )


def diagnosed(facts: PageFacts, diagnosis: Diagnosis | None) -> PageFacts:
    return replace(facts, document=replace(facts.document, diagnosis=diagnosis))


# -- elements


@pytest.mark.parametrize("text", HOSTILE)
def test_text_never_becomes_markup(text: str) -> None:
    made = tag("p", text, title=text, class_="a").text

    seen = parsed(made)
    assert seen.elements == ["p"]
    assert [name for name, _ in seen.attributes] == ["title", "class"]
    assert seen.text.isprintable()


def test_attributes_without_a_value_are_left_out() -> None:
    assert tag("td", "x", class_=None, hidden=False).text == "<td>x</td>"
    assert tag("details", open=True).text == "<details open></details>"
    assert tag("meta", charset="utf-8").text == '<meta charset="utf-8">'
    assert tag("i", aria_hidden="true").text == '<i aria-hidden="true"></i>'


def test_children_that_are_not_there_leave_nothing() -> None:
    assert joined_html(["a<", None, Html("<br>")], between="&").text == "a&lt;&amp;<br>"


def test_columns_of_numbers_are_marked() -> None:
    made = table(["what", "value"], [["a", "1"]]).text
    assert '<td class="number">1</td>' in made
    assert "<td>a</td>" in made


# -- the page


@pytest.mark.parametrize("name", PAGES)
def test_every_element_is_closed(name: str) -> None:
    page = page_of(PAGES[name]())
    for element in set(parsed(page).elements) - {"meta", "br"}:
        assert len(re.findall(rf"<{element}[ >]", page)) == page.count(f"</{element}>"), element


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_has_a_page(name: str) -> None:
    text = parsed(page_of(bare(CASES[name]()))).text
    assert healthy().run_id in text
    assert "Per step" in text or CASES[name]().num_steps == 0


def test_a_run_with_everything_has_a_page_of_bounded_size() -> None:
    assert len(page_of(bare(crowded()))) < 200_000


def test_the_page_says_what_the_report_says() -> None:
    text = parsed(page_of(gpt())).text
    assert "python train.py --lr 3e-4" in text
    assert "finished in 1 min 04 s" in text
    assert "118 ms" in text
    assert "470 counted; excluded: 30 warm-up" in text
    assert "train.py:27" in text
    assert "loss.backward()" in text
    assert "AMD EPYC 7B13" in text
    assert "started 2026-11-20 10:15 UTC" in text


def test_the_first_finding_opens_the_page_and_the_next_command_follows() -> None:
    facts = bare(CASES["input_bound"]())
    text = parsed(page_of(facts)).text
    assert text.index("Input-bound") < text.index("Where a step's time goes")
    assert "steptime tune --levers dataloader -- python train.py" in text


def test_lines_that_cost_little_are_folded_and_those_of_the_run_stand_apart() -> None:
    facts = gpt()
    first = facts.document.measurement.sites[0]
    more = (
        replace(first, what="other", line=99, s_per_step=1e-5),
        replace(first, what="evaluation", line=55, s_per_step=6.0),
        replace(first, what="fetch", line=22, s_per_step=0.002),
    )
    m = replace(facts.document.measurement, sites=(*facts.document.measurement.sites, *more))
    _, page = page_of(replace(facts, document=replace(facts.document, measurement=m))).split(
        "<h2>Lines of the script</h2>"
    )
    folded = page.index("1 more, below 0.5 % of these or only counted")
    dear, small, apart = (page.index(f"train.py:{line} ") for line in (22, 99, 55))
    assert dear < folded < small < apart
    assert page.index("line, beside the steps") < apart


def test_what_the_report_says_of_work_workers_profile_and_memory_stands_on_the_page() -> None:
    assert "MFU" in parsed(page_of(bare(CASES["counted"]()))).text
    assert "a batch takes one of them" in parsed(page_of(bare(CASES["input_bound"]()))).text
    assert "open it at https://ui.perfetto.dev" in parsed(page_of(bare(CASES["profiled"]()))).text
    assert "bytes each" in parsed(page_of(bare(CASES["dissected"]()))).text


def test_work_that_is_not_proven_whole_is_a_lower_bound_on_the_page() -> None:
    run = CASES["counted"]()
    assert run.count is not None
    proof = Completeness(is_complete=False, num_matrices=3, num_met=3, unseen=("Mine",))

    text = parsed(page_of(bare(replace(run, count=replace(run.count, completeness=proof))))).text

    assert "MFU at least" in text
    assert "no operator made the results of Mine" in text
    assert "MFU at least" not in parsed(page_of(bare(run))).text


def test_a_page_without_a_diagnosis_or_with_an_empty_one_is_whole() -> None:
    assert "Environment" in page_of(diagnosed(bare(healthy()), None))
    empty = Diagnosis(schema=1, run_id="x", kind=BottleneckKind.BALANCED, findings=())
    assert "<h2>Balanced</h2>" in page_of(diagnosed(bare(healthy()), empty))


def test_what_ended_a_script_comes_first() -> None:
    crash = ScriptError(type="ValueError", text="<b>shapes</b>", num_updates=3, where="train.py:3")
    failed = ProcessEnd(state=RunState.FAILED, exit_code=1)
    page = page_of(bare(replace(healthy(), end=failed, errors=(crash,))))
    assert page.index("ValueError at train.py:3") < page.index("<h2>")
    assert "&lt;b&gt;shapes&lt;/b&gt;" in page


def test_ranks_are_compared_on_one_scale() -> None:
    page = page_of(two_ranks())
    assert "Ranks" in parsed(page).text
    assert "Ranks" not in parsed(page_of(bare(healthy()))).text


def test_of_very_many_ranks_the_page_has_the_first() -> None:
    many = crowded()
    ranks = tuple(replace(many.ranks[0], rank=i) for i in range(70))
    text = parsed(page_of(bare(replace(many, ranks=ranks, num_ranks=70)))).text
    assert "6 more" in text


def test_a_run_that_stood_still_names_who_was_waited_for_with_all_stacks() -> None:
    text = parsed(page_of(two_ranks())).text
    assert "rank 0 waits in a collective at train.py:61, for rank 1" in text
    assert "when its stacks were taken, and the run never went on." in text
    assert "all_reduce  torch/distributed/distributed_c10d.py:2830" in text
    assert "no stack: tracing is not permitted here" in text


def test_a_stall_that_passed_and_names_nobody_says_so() -> None:
    stall = make_stall(duration_s=12.0, culprits=())
    text = parsed(page_of(replace(bare(healthy()), stalls=(stall,)))).text
    assert "o step for 12.0 s after 300 steps of 150 ms; then it went on." in text
    assert "rank 0 waits in a collective at train.py:61" in text


def test_a_lasting_change_names_what_changed_with_it() -> None:
    text = parsed(page_of(replace(bare(healthy()), shifts=(make_shift(),)))).text
    assert "the cores that other programs keep busy, the time of backward" in text
    assert "2.01x (1.96 to 2.05)" in text
    nothing = make_shift(causes=())
    page = page_of(replace(bare(healthy()), shifts=(nothing,)))
    assert "no cause was observed" in page


def test_every_cause_of_a_lasting_change_has_words() -> None:
    assert set(CHANGES) == set(BY_CHANGE) - {"", "phase"}


def test_no_script_may_run_but_those_of_the_page() -> None:
    page = page_of(gpt())
    assert "script-src &#x27;none&#x27;" in page
    assert "default-src &#x27;none&#x27;" in page


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_the_users_becomes_markup(text: str) -> None:
    usual = parsed(page_of(hostile("plain"))).elements
    page = page_of(hostile(text))
    seen = parsed(page)
    assert seen.elements == usual
    assert not [name for name, _ in seen.attributes if name.startswith("on")]


def test_energy_of_a_step_stands_beside_its_time_where_it_is_known() -> None:
    facts = gpt()
    series = replace(facts.series, devices=make_devices(num=120))
    assert "of the devices, per step" in page_of(replace(facts, series=series))
    assert "of the devices, per step" not in page_of(facts)


def test_a_step_that_is_no_number_makes_no_page_fail() -> None:
    odd = StepPoint(rank=0, index=0, end_unix_s=1.0, step_time_s=float("nan"), wall_s={})
    assert "Environment" in page_of(replace(bare(healthy()), series=RunSeries(steps=(odd,))))


def test_findings_show_their_edit_and_the_command_that_tries_their_levers() -> None:
    loop = PythonLoop(
        code="random_per_element",
        file="train.py",
        line=3,
        end_line=3,
        text="x",
        phase="other",
        share_of_phase=0.8,
        edit=SourceEdit(diff="--- a/train.py\n+++ b/train.py\n", keeps="same_numbers"),
    )
    slow = {"compute_s": 0.4, "input_wait_s": 0.3, "fetch_s": 0.3, "other_s": 0.6}

    text = parsed(page_of(bare(make_measurement(python_loops=(loop,), **slow)))).text

    assert "This edit gives the same numbers, bit for bit:" in text
    assert "+++ b/train.py" in text
    assert "steptime tune --levers dataloader,whole_batch_fetch,dataset_cache -- " in text


def test_the_page_says_what_a_recipe_gave() -> None:
    facts = bare(make_measurement())
    gain = RecipeGain(step_s=0.5, missing="differs")

    text = parsed(page_of(replace(facts, document=replace(facts.document, recipe_gain=gain)))).text

    assert "gave a step takes 500 ms, and what it gave against its proof is not known" in text


def test_the_times_of_lines_sum_to_the_mean_of_their_phase_unless_they_cover_little_of_it() -> None:
    first = gpt().document.measurement.sites[0]
    phases = (Phase(name="forward", median_s=0.03, mean_s=0.03), Phase(name="other", mean_s=0.01))
    sites = (
        replace(first, what="forward", s_per_step=0.04),
        replace(first, what="forward", s_per_step=0.02),
        replace(first, what="other", s_per_step=0.001),
    )
    found = scaled_sites(replace(gpt().document.measurement, phases=phases, sites=sites))

    assert [site.s_per_step for site in found] == pytest.approx([0.02, 0.01, 0.001])
