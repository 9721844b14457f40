import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import steptime
from report_cases import (
    CASES,
    RUN_ID,
    counted,
    crowded,
    healthy,
    input_bound,
    make_measurement,
    make_phases,
    make_quantity,
    make_steady,
    no_steps,
)
from steptime.app.run.describe_run import describe_run
from steptime.app.stored.run_listing import opening_of
from steptime.core.codec import encode
from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis, Finding, Severity
from steptime.measure.fold.record_notes import NOTES
from steptime.measure.values.measurement import (
    INNER_PHASES,
    PHASES,
    SPANS,
    Measurement,
    Overhead,
    Phase,
    Span,
)
from steptime.measure.values.model.attention_call import AttentionCall
from steptime.measure.values.model.operator_time import TimedOperator
from steptime.measure.values.model.work import ClassCount, Count, ModuleCount
from steptime.measure.values.observations import (
    Compilation,
    LeverUse,
    LoaderUse,
    RecipeUse,
    ScriptError,
    Site,
)
from steptime.measure.values.run_summary import RunSummary
from steptime.measure.values.spent_line import SpentLine, SpentTime
from steptime.measure.values.training_loop import TrainingLoop
from steptime.measure.values.wall_time import WallPart
from steptime.report.blocks.run.counted_steps import tiles
from steptime.report.blocks.run.phase_blocks import phase_blocks
from steptime.report.blocks.run.run_list import run_list
from steptime.report.document.run_document import Throughput
from steptime.report.html.paint_html import paint
from steptime.report.text.paint_text import print_blocks
from steptime.report.text.print_run import LEAST_LINES, MOST_LINES, render
from steptime.report.words.run import run_words
from steptime.report.words.run.advice import next_act
from steptime.report.words.run.step_words import describe_counts, describe_throughput
from unit import builders

SOURCE = Path(steptime.__file__).parent


def show(
    measurement: Measurement, diagnosis: Diagnosis | None = None, *, width: int = 80, **options: Any
) -> str:
    file = io.StringIO()
    document = describe_run(measurement, diagnosis or diagnose(measurement))
    render(document, console=Console(file=file, width=width, **options))
    return file.getvalue()


def on_terminal(
    measurement: Measurement,
    diagnosis: Diagnosis | None = None,
    *,
    width: int = 80,
    height: int = 24,
) -> str:
    size = {"width": width, "height": height}
    return show(measurement, diagnosis, **size, force_terminal=True, color_system=None)


def diagnosis_of(*findings: Finding) -> Diagnosis:
    kind = findings[0].kind or BottleneckKind.BALANCED
    return Diagnosis(schema=SCHEMA, run_id=RUN_ID, kind=kind, findings=findings)


def finding(kind: BottleneckKind | None, cause: str | None, **more: Any) -> Finding:
    more = {"severity": Severity.WARNING, "evidence": ()} | more
    return Finding(kind=kind, cause=cause, **more)


# -- the whole report


@pytest.mark.parametrize("name", CASES)
def test_the_reports_are_golden(name: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"{name}.txt", show(CASES[name]()))


@pytest.mark.parametrize("make", [*CASES.values(), crowded])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_report_fits_one_screen(make: Callable[[], Measurement], width: int) -> None:
    lines = on_terminal(replace(make(), profile=None), width=width).splitlines()
    assert len(lines) <= LEAST_LINES
    # The last line is a command to copy: it is never broken.
    assert max(len(line) for line in lines[:-1]) <= width


@pytest.mark.parametrize("make", [*CASES.values(), crowded])
def test_a_tall_terminal_gets_more_lines_but_never_more_than_thirty(make) -> None:
    tall = on_terminal(make(), height=60).splitlines()
    assert len(on_terminal(make()).splitlines()) <= len(tall) <= MOST_LINES


@pytest.mark.parametrize("make", [*CASES.values(), crowded])
def test_what_is_never_cut_stands_on_the_smallest_terminal(make) -> None:
    whole, short = show(make()), on_terminal(make())
    for label in ("diagnosis", "throughput", "machine", "next"):
        assert re.findall(rf"^{label}  ", short, re.MULTILINE) == re.findall(
            rf"^{label}  ", whole, re.MULTILINE
        )
    assert short.splitlines()[0] == whole.splitlines()[0]


@pytest.mark.parametrize("name", CASES)
def test_colour_adds_nothing_but_colour(name: str) -> None:
    coloured = show(CASES[name](), height=24, force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == on_terminal(CASES[name]())


def test_labels_are_dim_and_what_they_label_is_not() -> None:
    text = show(input_bound(), force_terminal=True, color_system="standard")
    assert "\x1b[2mdiagnosis  \x1b[0m\x1b[1;31minput-bound\x1b[0m: a step waits" in text


def test_a_dumb_terminal_gets_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in show(healthy(), force_terminal=True)


def test_no_color_takes_the_colours_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = show(healthy(), force_terminal=True, color_system="standard")
    assert not re.search(r"\x1b\[[\d;]*3\d", text)


def test_a_file_that_takes_ascii_only_gets_ascii_only() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    measurement = replace(healthy(), command=("python", "trän.py"))
    render(describe_run(measurement, diagnose(measurement)), console=Console(file=file, width=80))
    file.flush()
    assert b"####" in raw.getvalue()
    assert rb"tr\xe4n.py" in raw.getvalue()


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("[red]x[/red]", "[red]x[/red]"),
        ("[/]", "[/]"),
        (":smile:", ":smile:"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb", r"a\nb"),
        ("\u202e", r"\u202e"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_the_user_typed_is_shown_and_never_interpreted(word: str, shown: str) -> None:
    run = replace(healthy(), command=("python", word))
    text = show(run, height=60, force_terminal=True, no_color=True)
    assert shown in text
    assert word == shown or word not in text


def test_where_and_facts_of_notes_are_never_interpreted() -> None:
    measurement = replace(
        healthy(), notes=(Note(code="hooks_failed", facts={"reasons": "[bold]\x1b[2J"}),)
    )
    diagnosis = diagnosis_of(finding(BottleneckKind.BALANCED, None, where="/x/[red]\x1b.py:3"))
    text = show(measurement, diagnosis)
    assert r"[bold]\x1b[2J" in text
    assert r"/x/[red]\x1b.py:3" in text


# -- its parts


def test_the_first_lines_say_how_many_steps_how_long_and_what_holds_them_back() -> None:
    text = "\n".join(show(input_bound()).splitlines()[:7])
    assert "step time  119 ms  median of 470, 95 % interval 117 ms to 120 ms" in text
    assert text.startswith("diagnosis  input-bound: a step waits 73.3 ms for data, 61.8 % of its")
    assert "steps      500; 470 counted; excluded: 30 warm-up" in show(input_bound())


def test_the_diagnosis_says_what_is_gained_at_most() -> None:
    text = " ".join(show(input_bound()).split())
    assert "Without the wait a step would take at least 45.3 ms: at most 2.62x faster." in text


def test_cpu_time_that_is_known_of_all_steps_together_is_that_of_a_mean_step() -> None:
    facts = {"watched": 524, "steps": 3000, "watched_s": 0.2, "step_s": 0.119}
    rested = replace(input_bound(), notes=(Note(code="watched_in_bursts", facts=facts),))

    assert "· CPU 225 ms\n" in show(input_bound())
    assert "· CPU 225 ms in a mean step" in " ".join(show(rested).split())


def test_where_the_mean_step_is_no_usual_one_a_gain_is_that_of_the_mean_one() -> None:
    run = input_bound()  # its usual step takes 117 ms to 120 ms
    assert run.steady is not None
    for mean_s, told in (
        (0.118, "a step would take at least 45.3 ms: "),
        (0.262, "a mean step would take at least 100 ms: "),
    ):
        text = " ".join(show(replace(run, steady=replace(run.steady, mean_s=mean_s))).split())
        assert f"Without the wait {told}at most 2.62x faster." in text


def test_a_phase_not_observed_has_no_row_but_a_reason() -> None:
    text = show(healthy())
    assert "not seen   copy to device, sync stalls (the run was on the CPU)" in text
    assert not re.search(r"^sync stalls", text, re.MULTILINE)


def test_what_is_plain_anyway_is_not_said() -> None:
    assert "communication" not in show(healthy())
    assert "forward and loss" not in show(healthy())


def test_parts_of_the_input_wait_are_indented_below_it() -> None:
    rows = {"input_wait": 0.05, "fetch": 0.03, "collate": 0.02, "forward": 0.05}
    lines = show(make_measurement(make_phases(rows))).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("input wait"))
    assert lines[start + 1].startswith("  fetch")
    assert lines[start + 2].startswith("  collate")


def test_the_times_and_shares_of_a_row_are_of_one_statistic_in_terminal_and_page() -> None:
    phases = (
        Phase(name="forward", median_s=32.6e-6, mean_s=20e-6, fraction=0.2),
        Phase(name="optimizer", median_s=31.9e-6, mean_s=80e-6, fraction=0.8),
    )
    run = replace(healthy(), phases=phases)
    page = str(paint(phase_blocks(run)))
    for text in (show(run), page):
        assert "mean" in text
        for figure in ("20.0 µs", "20.0 %", "80.0 µs", "80.0 %"):
            assert figure in text
        assert not re.search(r"3[12]\.\d µs", text)


def test_device_times_have_a_column_of_their_own() -> None:
    assert "device" not in show(healthy()).split("not seen")[0]
    assert "device" in show(crowded())


def test_what_is_left_out_for_want_of_room_is_counted() -> None:
    text = on_terminal(crowded(), height=60)
    assert "more ranks, which wait longer for the others: 60" in text
    folded = " ".join(text.split())
    assert "left out ranks, other findings, notes and 6 more; `show -v` has all" in folded


def test_ranks_stay_when_niceties_have_gone() -> None:
    run = crowded()
    text = on_terminal(replace(run, notes=run.notes[:1]), height=60)
    assert re.findall(r"^(\d+) +500 ", text, re.MULTILINE) == ["0", "1", "2", "3"]
    assert "Steptime itself took" not in text


@pytest.mark.parametrize("number", [1, 3, 5, 7, 9, 12, 20])
def test_no_finding_goes_before_the_last_nicety(number: int) -> None:
    leak = finding(None, "leak", evidence=(Evidence(name="growth", value=0.5, unit="fraction"),))
    balanced = finding(BottleneckKind.BALANCED, None)
    text = on_terminal(healthy(), diagnosis_of(balanced, *(leak,) * number))

    has_all = text.count("also       memory leak") == number
    labels = ("workers", "beside", "overhead", "not seen", "per step", "padding")
    niceties = [one for one in labels if re.search(rf"^{one}  ", text, re.MULTILINE)]
    assert has_all or not niceties
    assert has_all or "other findings" in " ".join(text.split())


def test_processes_that_know_of_no_rank_are_told_with_the_line_where_they_train() -> None:
    (one,) = healthy().ranks
    apart = tuple(replace(one, rank=n, world_size=1, where=f"a3c.py:{14 + n}") for n in range(2))
    text = show(replace(healthy(), num_ranks=2, ranks=apart))

    assert re.search(r"^process +steps .* trains at", text, re.MULTILINE)
    assert re.findall(r"^\d .* (a3c.py:\d+)", text, re.MULTILINE) == ["a3c.py:14", "a3c.py:15"]
    together = tuple(replace(rank, world_size=2) for rank in apart)
    assert "a3c.py" not in show(replace(healthy(), num_ranks=2, ranks=together))


def test_all_loops_are_told_where_the_output_is_no_terminal() -> None:
    loops = tuple(
        TrainingLoop(number=n, num_steps=9, first_step=9 * n - 9, last_step=9 * n - 1, total_s=1.0)
        for n in range(1, 10)
    )
    run = replace(healthy(), loops=loops)
    assert "9: 9 steps" in show(run)
    assert "more loops in the document of --json: 6" in on_terminal(run, height=60)


def test_where_the_output_is_no_terminal_all_of_it_is_shown() -> None:
    many, text = crowded(), show(crowded())
    assert len(text.splitlines()) > LEAST_LINES
    assert not re.search(r"^(more|left out)|document of --json", text, re.MULTILINE)
    assert all(re.search(rf"^{rank.rank} ", text, re.MULTILINE) for rank in many.ranks)
    assert text.count("\nnote  ") == len(many.notes)
    assert text.count("\nalso  ") == len(diagnose(many).findings) - 1


def test_the_steps_that_are_left_out_add_up() -> None:
    steady = replace(make_steady(0.1), num_steps=24, num_warmup_steps=4)
    text = show(replace(healthy(), num_steps=34, steady=steady), width=100)
    told = "34; 24 counted; excluded: 4 warm-up, 6 probed, compiling or stalled"
    assert told in " ".join(text.split())


def test_of_many_ranks_those_are_shown_that_wait_least_for_the_others() -> None:
    many = crowded()
    late = replace(
        many.ranks[37],
        phases=tuple(
            replace(p, median_s=0.0001) if p.name == "communication" else p
            for p in many.ranks[37].phases
        ),
    )
    ranks = tuple(late if rank.rank == 37 else rank for rank in many.ranks)
    assert re.search(r"^37 ", on_terminal(replace(many, ranks=ranks), height=60), re.MULTILINE)


@pytest.mark.parametrize(
    ("threads", "text"), [(None, "· cpu ·"), (1, "cpu, 1 thread ·"), (2, "cpu, 2 threads ·")]
)
def test_the_device_is_named_with_its_threads(threads: int | None, text: str) -> None:
    rank = replace(healthy().ranks[0], num_threads=threads)
    assert text in show(replace(healthy(), ranks=(rank,)))


def test_a_run_without_steps_is_a_few_lines() -> None:
    text = show(no_steps())
    assert len(text.splitlines()) < 12
    assert "none was seen" in text
    assert "never imported torch" in text


def test_a_report_without_a_diagnosis_has_no_line_for_it() -> None:
    file = io.StringIO()
    render(describe_run(healthy(), None), console=Console(file=file, width=80))
    assert "diagnosis" not in file.getvalue()
    assert file.getvalue().endswith(f"steptime show {RUN_ID}\n")


def test_steps_of_several_updates_and_backward_passes_say_so() -> None:
    measurement = replace(
        healthy(), num_optimizer_updates=1000, num_backwards=4000, num_skipped_updates=3, period=4
    )
    text = " ".join(show(measurement).split())
    assert "1,000 optimizer updates" in text
    assert "4,000 backward passes" in text
    assert "3 updates skipped by the gradient scaler" in text
    assert "kinds of step repeat every 4" in text


def test_the_overhead_is_always_said() -> None:
    assert "Steptime itself took 41.0 µs of CPU per step (<0.1 % of the step's)" in show(healthy())


def test_what_is_not_known_has_no_line() -> None:
    unknown = replace(
        healthy(),
        duration_s=None,
        steady=None,
        phases=(),
        host=None,
        overhead=Overhead(cpu_s_per_step=41e-6, fraction=None),
    )
    text = show(unknown, diagnosis_of(finding(BottleneckKind.INPUT_BOUND, "fetch")))
    assert "finished · cpu" in text
    assert "step time" not in text
    assert "machine    its load was not sampled" in text
    assert "Steptime itself took 41.0 µs of CPU per step\n" in text
    no_cpu = replace(make_steady(0.1), step_cpu_s=None)
    assert "· CPU" not in show(replace(healthy(), steady=no_cpu))


def test_a_diagnosis_without_findings_is_its_kind_alone() -> None:
    empty = Diagnosis(schema=SCHEMA, run_id=RUN_ID, kind=BottleneckKind.BALANCED, findings=())
    assert "diagnosis  balanced\n" in show(healthy(), empty)


def test_findings_that_are_no_bottleneck_stand_below_with_their_severity() -> None:
    leak = finding(None, "leak", evidence=(Evidence(name="growth", value=0.5, unit="fraction"),))
    balanced = finding(BottleneckKind.BALANCED, None)
    leaks = diagnosis_of(balanced, *(leak,) * 40)
    text = show(healthy(), leaks)
    assert text.count("also       memory leak: leak growth 50.0 %") == 40
    assert "other findings" in " ".join(on_terminal(healthy(), leaks).split())


CRASH = ScriptError(
    type="RuntimeError",
    text="not enough\nmemory \x1b[31m",
    num_updates=12,
    is_memory=True,
    where="train.py:31",
    phase="backward",
    requested_bytes=4 << 30,
)


def test_what_ended_the_script_is_told_with_its_place() -> None:
    ended = ProcessEnd(state=RunState.FAILED, exit_code=1)
    text = " ".join(show(replace(healthy(), end=ended, errors=(CRASH,)), width=100).split())
    assert "RuntimeError at train.py:31 in backward, after 12 optimizer updates" in text
    assert "not enough memory \\x1b[31m" in text
    assert "memory-capacity-bound: a process of the run ran out of memory and died" in text


def test_a_run_without_a_step_that_died_of_memory_says_so() -> None:
    ended = ProcessEnd(state=RunState.FAILED, exit_code=1)
    text = show(replace(no_steps(), end=ended, errors=(CRASH,)))
    assert "memory-capacity-bound: a process of the run ran out of memory" in text
    assert "Make the batch smaller" in text


def test_a_finding_names_line_text_calls_and_time() -> None:
    values = (
        Evidence(name="sync", value=0.3, unit="fraction"),
        Evidence(name="calls", value=3.0, unit="count"),
        Evidence(name="site_time", value=0.0041, unit="s"),
    )
    found = finding(
        BottleneckKind.HOST_BOUND,
        "sync",
        evidence=values,
        where="train.py:187",
        where_text="print(loss.item())",
    )
    text = " ".join(show(healthy(), diagnosis_of(found), width=120).split())
    assert "At train.py:187 `print(loss.item())`, 3 per step." in text


def test_the_larger_phases_have_their_lines() -> None:
    places = {"forward": (24, 24), "other": (27, 29), "optimizer": (30, 30), "sync": (33, 33)}
    sites = tuple(
        Site(what=what, file="train.py", line=first, end_line=last, calls_per_step=1)
        for what, (first, last) in places.items()
    )
    text = show(replace(healthy(), sites=sites), width=120)
    assert re.search(r"^forward .* train.py:24 ", text, re.MULTILINE)
    assert not re.search(r"^sync stalls .*train.py", text, re.MULTILINE)


def test_a_screen_too_narrow_for_all_still_gets_all() -> None:
    lines = show(crowded(), width=50).splitlines()
    assert lines[-1].strip().startswith("steptime run -- torchrun")


def test_a_note_with_a_long_exception_is_cut() -> None:
    note = Note(code="guest_failures", facts={"hooks.backward": f"1 (ValueError: {'x ' * 500})"})
    text = show(replace(healthy(), notes=(note,)))
    assert "where: hooks.backward 1 (ValueError: x x" in " ".join(text.split())
    assert len(text.splitlines()) < 34


BUSY = finding(BottleneckKind.CONTENDED, "neighbor", severity=Severity.CRITICAL)
STOPPED = finding(
    None,
    "starved",
    severity=Severity.CRITICAL,
    evidence=(
        Evidence(name="stopped", value=0.97, unit="fraction"),
        Evidence(name="quota_cores", value=0.5, unit="cores"),
        Evidence(name="lost", value=0.9, unit="fraction"),
    ),
)
HOT = finding(None, "throttled", evidence=(Evidence(name="throttled", value=0.4, unit="fraction"),))


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (BUSY, "contended: this run kept 1.91 of 2 cores busy, others 0.04, so steps take longer"),
        (
            STOPPED,
            "a quota of 0.5 cores stopped the run in 97.0 % of the quota's periods; it waited",
        ),
        (HOT, "heat or the power supply held the device's clock down in 40.0 % of the samples"),
    ],
)
@pytest.mark.parametrize("turn", [1, -1])
def test_a_machine_that_takes_time_is_told_before_the_bottleneck(
    machine: Finding, words: str, turn: int
) -> None:
    findings = (machine, finding(BottleneckKind.INPUT_BOUND, "fetch"))[::turn]
    found = Diagnosis(
        schema=SCHEMA, run_id=RUN_ID, kind=BottleneckKind.INPUT_BOUND, findings=findings
    )
    for text in (show(crowded(), found), on_terminal(crowded(), found)):
        first, second = re.findall(r"^(machine|diagnosis)  ", text, re.MULTILINE)
        assert (first, second) == ("machine", "diagnosis")
        assert words.split("1.91")[0] in " ".join(text.split())
        assert "also       contended" not in text
    assert words in " ".join(show(healthy(), found).split())
    assert opening_of(found) == machine.cause
    title = machine.cause if machine.kind is None else "contended"
    row = make_row(kind="INPUT_BOUND", opens_with=opening_of(found))
    assert f"{title}, input-bound" in show_runs(row)


def test_a_failure_or_a_hang_is_told_before_the_machine() -> None:
    failed = finding(None, "failure", severity=Severity.CRITICAL)
    found = Diagnosis(
        schema=SCHEMA, run_id=RUN_ID, kind=BottleneckKind.BALANCED, findings=(BUSY, failed)
    )
    lines = re.findall(r"^(?:machine|diagnosis)  .*?:", show(healthy(), found), re.MULTILINE)
    assert lines == ["diagnosis  failed:", "machine    contended:"]
    assert opening_of(found) == "failure"


def test_the_line_of_the_machine_is_always_there() -> None:
    for make in (*CASES.values(), crowded):
        assert len(re.findall(r"^machine  ", on_terminal(make()), re.MULTILINE)) == 1
    assert "machine    this run kept 1.91 of 2 cores busy" in show(healthy())


def test_beside_a_machine_that_takes_time_no_lever_is_offered_for_steps_that_only_compute() -> None:
    compute = finding(BottleneckKind.COMPUTE_BOUND, None, severity=Severity.INFO)
    found = Diagnosis(
        schema=SCHEMA, run_id=RUN_ID, kind=BottleneckKind.COMPUTE_BOUND, findings=(STOPPED, compute)
    )
    act = next_act(healthy(), found)
    assert act.sentence.startswith("Allow the command more cores")
    assert "compile" not in act.command


# -- what to do next


def test_the_last_line_is_a_command() -> None:
    for make in (*CASES.values(), crowded):
        assert show(make()).splitlines()[-1].strip().startswith("steptime ")


def test_advice_does_not_repeat_what_was_done() -> None:
    in_process = next_act(healthy(), diagnosis_of(finding(BottleneckKind.INPUT_BOUND, "fetch")))
    assert "num_workers above 0" in in_process.sentence
    with_workers = next_act(input_bound(), diagnose(input_bound()))
    assert "num_workers above 0" not in with_workers.sentence
    assert "more workers, since cores are free" in with_workers.sentence


def test_more_workers_are_no_advice_where_no_core_is_free() -> None:
    run = input_bound()
    assert run.host is not None
    full = replace(run, host=replace(run.host, num_cores=2))  # of which it keeps 1.91 busy
    act = next_act(full, diagnose(full))

    assert act.sentence.startswith("Make a sample cheaper to read.")
    assert "dataloader" not in act.command


@pytest.mark.parametrize(
    ("optimizers", "words", "has_lever"),
    [
        (("AdamW",), "Let one kernel update all parameters", True),
        (("LBFGS",), "Update all parameters in a few calls", False),
        (("lion_pytorch.Lion",), "Update all parameters in a few calls", False),
        (("keras.Adam",), "Update all parameters in a few calls", False),
        (("__main__.SGD",), "Update all parameters in a few calls", False),
    ],
)
def test_one_kernel_is_advice_for_optimizers_that_have_one(
    optimizers: tuple[str, ...], words: str, *, has_lever: bool
) -> None:
    (rank,) = healthy().ranks
    ranks = (replace(rank, optimizers=optimizers),)
    phases = make_phases({"forward": 0.02, "backward": 0.03, "optimizer": 0.05})
    act = next_act(run := replace(healthy(), phases=phases, ranks=ranks), diagnose(run))

    assert act.sentence.startswith(words)
    assert ("fused_optimizer" in act.command) is has_lever


@pytest.mark.parametrize(
    ("num_backwards", "num_exchanges", "has_lever", "says_so"),
    [
        (400, 399, True, True),
        (400, 99, False, False),  # the script's own `no_sync`
        (400, None, False, True),  # of FSDP2, which tells nothing
        (100, 99, False, False),
    ],
)
def test_exchanges_are_left_out_only_where_ddp_makes_too_many(
    num_backwards: int, num_exchanges: int | None, *, has_lever: bool, says_so: bool
) -> None:
    told = {"num_backwards": num_backwards, "num_exchanges": num_exchanges}
    ranks = [builders.make_rank(i, world_size=2, forward=0.5, communication=0.5) for i in range(2)]
    run = builders.make_measurement(
        compute_s=0.5,
        communication_s=0.5,
        ranks=tuple(replace(one, num_optimizer_updates=100, **told) for one in ranks),
    )
    act = next_act(run, diagnose(run))

    assert act.sentence.startswith("Exchange less often, with larger batches")
    assert ("ddp_no_sync" in act.command) is has_lever
    assert ("no_sync of DDP" in act.sentence) is says_so


@pytest.mark.parametrize(
    ("capabilities", "is_named"), [(("amx_bf16",), True), (None, True), ((), False)]
)
def test_mixed_precision_is_tried_where_the_processor_has_it(
    capabilities: tuple[str, ...] | None, *, is_named: bool
) -> None:
    (rank,) = healthy().ranks
    run = replace(healthy(), ranks=(replace(rank, capabilities=capabilities),))

    assert ("autocast" in next_act(run, diagnose(run)).command) is is_named


def test_the_same_command_is_given_to_copy_as_a_shell_reads_it() -> None:
    measurement = replace(input_bound(), command=("python", "my train.py", "--x=$HOME"))
    act = next_act(measurement, diagnose(measurement))
    assert act.command == "steptime tune --levers dataloader -- python 'my train.py' '--x=$HOME'"


@pytest.mark.parametrize("words_", [("python", "x" * 500), ("bash", "-c", "a\nb")])
def test_a_command_nobody_can_copy_is_not_repeated(words_: tuple[str, ...]) -> None:
    measurement = replace(input_bound(), command=words_)
    act = next_act(measurement, diagnose(measurement))
    assert act.command == "steptime tune --levers dataloader -- ..."


def bound_by_preprocessing() -> Diagnosis:
    return diagnosis_of(finding(BottleneckKind.INPUT_BOUND, "preprocessing"))


def test_the_next_command_names_the_levers_that_relieve_what_was_found() -> None:
    act = next_act(healthy(), diagnose(healthy()))

    assert act.sentence.endswith("Or let Steptime try these levers and prove the result:")
    levers = "autocast,compile,fused_optimizer,num_threads"
    assert act.command == f"steptime tune --levers {levers} -- python train.py --lr 3e-4"


def test_levers_that_undo_something_come_first_where_that_was_seen() -> None:
    found = counted()
    assert found.count is not None
    again = replace(found.count, recomputed=found.count.forward)
    compute = diagnosis_of(finding(BottleneckKind.COMPUTE_BOUND, None))

    act = next_act(replace(found, count=again), compute)
    assert " --levers no_checkpointing,autocast," in act.command
    assert " --levers autocast," in next_act(found, compute).command


def test_where_no_lever_relieves_it_the_remedy_is_measured_by_hand() -> None:
    act = next_act(healthy(), bound_by_preprocessing())

    assert act.sentence.endswith("(DataLoader: num_workers above 0). Then measure again:")
    assert act.command == "steptime run -- python train.py --lr 3e-4"


def test_a_run_that_failed_is_not_tuned() -> None:
    failed = replace(input_bound(), end=ProcessEnd(state=RunState.FAILED, exit_code=1))

    assert next_act(failed, diagnose(input_bound())).command.startswith("steptime run")


@pytest.mark.parametrize(
    ("lever", "changes"),
    [
        ("compile", {"compilation": Compilation(num_graphs=2, num_steps_touched=2, total_s=1.0)}),
        ("num_threads", {"ranks": (replace(healthy().ranks[0], device="cuda"),)}),
        ("num_threads", {"ranks": (replace(healthy().ranks[0], num_threads=1),)}),
        ("channels_last", {}),
        ("cudnn_benchmark", {"ranks": (replace(healthy().ranks[0], device="cuda"),)}),
    ],
)
def test_a_lever_that_cannot_apply_is_not_named(lever: str, changes: dict[str, Any]) -> None:
    found = diagnosis_of(finding(BottleneckKind.COMPUTE_BOUND, None))

    assert lever not in next_act(replace(healthy(), **changes), found).command


def test_images_may_be_laid_out_in_another_order() -> None:
    convolution = ClassCount(name="convolution", num=10, flops=30)
    sums = {"forward": 10, "backward": 20, "recomputed": 0, "macs": 15}
    count = Count(**sums, by_dtype={"fp32": 30}, classes=(convolution,))
    found = diagnosis_of(finding(BottleneckKind.COMPUTE_BOUND, None))

    command = next_act(replace(healthy(), count=count), found).command
    assert "channels_last" in command
    assert "cudnn_benchmark" not in command
    ranks = (replace(healthy().ranks[0], device="cuda"),)
    on_device = replace(healthy(), count=count, ranks=ranks)
    assert "channels_last,cudnn_benchmark" in next_act(on_device, found).command


def test_a_lever_for_a_part_of_a_model_is_named_where_the_part_was_seen() -> None:
    found = diagnosis_of(finding(BottleneckKind.COMPUTE_BOUND, None))
    written = AttentionCall(way="written", backend="none", dtype="float32", num=4, length=256)
    cell = ModuleCount(name="Net.cell", kind="LSTMCell", forward=10, backward=20, recomputed=0)
    sums = {"forward": 10, "backward": 20, "recomputed": 0, "macs": 15}
    count = Count(**sums, by_dtype={"fp32": 30}, modules=(cell,))

    with_both = replace(healthy(), attention=(written,), count=count)
    assert "fused_attention,fused_rnn" in next_act(with_both, found).command
    assert "fused_" not in next_act(healthy(), found).command.replace("fused_optimizer", "")


@pytest.mark.parametrize(
    ("operator", "module", "is_named"),
    [("aten.tanh", "NewGELU", True), ("aten.gelu", "GELU", False), ("aten.tanh", "Tanh", False)],
)
def test_fused_gelu_is_named_where_tanh_takes_time_in_a_module_of_that_name(
    operator: str, module: str, *, is_named: bool
) -> None:
    found = diagnosis_of(finding(BottleneckKind.COMPUTE_BOUND, "elementwise"))
    one = TimedOperator(name=operator, kind="elementwise", module_kind=module)
    sums = {"forward": 10, "backward": 20, "recomputed": 0, "macs": 15}
    run = replace(healthy(), count=Count(**sums, by_dtype={"fp32": 30}, operators=(one,)))

    assert ("fused_gelu" in next_act(run, found).command) is is_named


def with_recipe(*levers: str) -> Measurement:
    use = RecipeUse(
        path="tuned.toml",
        study_id="s",
        speedup=make_quantity(1.2),
        levers=tuple(LeverUse(name=name, settings={}, is_in_guest=True) for name in levers),
    )
    return replace(healthy(), recipe=use)


def test_what_the_recipe_does_already_is_not_advised() -> None:
    compute = diagnosis_of(finding(BottleneckKind.COMPUTE_BOUND, None))
    some = next_act(with_recipe("autocast"), compute)
    wait = diagnosis_of(finding(BottleneckKind.INPUT_BOUND, None))
    every = next_act(with_recipe("dataloader"), wait)

    assert "The recipe already uses autocast. Let Steptime try other levers" in some.sentence
    assert "16 bits" not in some.sentence
    assert some.command.startswith("steptime tune --recipe tuned.toml --levers compile,")
    assert "The recipe already uses what relieves this (dataloader)." in every.sentence
    assert every.command == f"steptime show {RUN_ID}"


def test_a_run_that_goes_on_is_to_be_looked_at_later() -> None:
    measurement = replace(input_bound(), end=ProcessEnd(state=RunState.RUNNING))
    assert "later" in next_act(measurement, diagnose(measurement)).sentence


def test_a_script_that_failed_before_its_first_step_is_to_be_mended_first() -> None:
    measurement = replace(no_steps(), end=ProcessEnd(state=RunState.FAILED, exit_code=1))
    assert "Mend" in next_act(measurement, diagnose(measurement)).sentence


def test_balanced_asks_for_nothing() -> None:
    act = next_act(healthy(), diagnosis_of(finding(BottleneckKind.BALANCED, None)))
    assert act.command == f"steptime show {RUN_ID}"


# -- the words


def test_every_phase_and_span_has_words() -> None:
    assert set(run_words.PHASES) == {*PHASES, *INNER_PHASES}
    assert set(run_words.SPANS) == set(SPANS)


def test_every_note_has_a_sentence() -> None:
    assert set(run_words.NOTES) == {rule.__name__ for rule in NOTES}


def test_every_reason_for_an_absent_phase_has_words() -> None:
    source = (SOURCE / "measure" / "steps" / "phases.py").read_text(encoding="utf-8")
    literals = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', source))
    assert literals - {*PHASES, *SPANS} <= set(run_words.MISSING)


def test_unknown_words_are_shown_as_they_are() -> None:
    assert run_words.describe_phase("warp") == "warp"
    assert run_words.describe_span("nap") == "nap"
    assert run_words.describe_missing("no_idea") == "no_idea"
    assert run_words.describe_note(Note(code="odd", facts={"n": "3"})) == "odd n 3"
    assert run_words.describe_note(Note(code="odd")) == "odd"
    growth = Evidence(name="growth", value=0.5, unit="fraction")
    partial = finding(None, "leak", evidence=(growth,))
    assert run_words.describe_finding(partial, None) == "leak growth 50.0 %."
    strange = finding(BottleneckKind.BALANCED, "gremlin", evidence=(growth,), headroom_speedup=2.0)
    assert run_words.describe_finding(strange, 1.0) == "gremlin growth 50.0 %."
    assert run_words.describe_heading(finding(None, "gremlin")) == "warning"


def test_no_word_of_a_finding_is_the_name_of_a_phase() -> None:
    assert not set(run_words.WORDS) & set(run_words.PHASES)


def test_a_note_whose_facts_are_not_there_is_shown_as_its_code() -> None:
    assert run_words.describe_note(Note(code="lost_updates")) == "lost_updates"


def test_a_note_without_numbers_has_no_empty_brackets() -> None:
    text = run_words.describe_note(Note(code="no_steps_seen"))
    assert "()" not in text
    assert text.startswith("torch was used, but no update of an optimizer")


def test_a_finding_says_what_would_make_it_more_certain() -> None:
    doubtful = finding(BottleneckKind.INPUT_BOUND, None, missing=("quiet_machine", "fetch"))
    assert run_words.describe_finding(doubtful, None).endswith(
        "It would be more certain with a quiet machine."
    )


@pytest.mark.parametrize(
    ("end", "text", "short"),
    [
        (ProcessEnd(state=RunState.FINISHED, exit_code=0), "finished", "finished"),
        (ProcessEnd(state=RunState.FAILED, exit_code=3), "failed with exit code 3", "exit 3"),
        (ProcessEnd(state=RunState.KILLED, signal=9), "killed by SIGKILL", "SIGKILL"),
        (ProcessEnd(state=RunState.KILLED, signal=250), "killed by signal 250", "signal 250"),
        (ProcessEnd(state=RunState.KILLED), "cut short", "cut short"),
        (ProcessEnd(state=RunState.FAILED), "failed", "failed"),
        (ProcessEnd(state=RunState.RUNNING), "still running", "running"),
        (
            ProcessEnd(state=RunState.STILL_TRAINING, exit_code=0),
            "still training in the background",
            "still training",
        ),
        (ProcessEnd(state=RunState.UNKNOWN), "end not seen", "?"),
    ],
)
def test_an_end_in_words(end: ProcessEnd, text: str, short: str) -> None:
    assert run_words.describe_end(end) == text
    assert run_words.describe_short_end(end) == short


def test_headroom_over_the_whole_run_names_no_step_time() -> None:
    startup = finding(BottleneckKind.INPUT_BOUND, "worker_startup", headroom_speedup=1.3)
    text = run_words.describe_headroom(startup, 0.1, "a step")
    assert text == "Without the starts of workers the loop would be at most 1.30x faster."


COUNTED = {
    "evaluation": r"([\d,]+) evaluations took",
    "checkpoint": r"([\d,]+) checkpoints took",
    "epoch start": r"([\d,]+) starts of an epoch took",
}


def evaluated_at_its_end() -> Measurement:
    """Seventeen evaluations between steps, and one after the last step."""
    run = replace(healthy(), spans=(Span(name="evaluation", total_s=43.0, num_steps_touched=17),))
    assert run.wall_time is not None
    parts = [part for part in run.wall_time.parts if part.name != "evaluation"]
    parts.append(WallPart(name="evaluation", total_s=43.0, num=18))
    return replace(run, wall_time=replace(run.wall_time, parts=tuple(parts)))


@pytest.mark.parametrize("make", [*CASES.values(), crowded, evaluated_at_its_end])
def test_no_count_of_a_report_contradicts_another(make: Callable[[], Measurement]) -> None:
    text = " ".join(show(make(), width=200).split())
    for name, told in COUNTED.items():
        found = re.findall(rf"{name} [^·(]*\(([\d,]+)x", text) + re.findall(told, text)
        assert len(set(found)) <= 1, (name, found)
    if make is evaluated_at_its_end:
        assert "18 evaluations took 43.0 s" in text


# -- the list of runs


def show_runs(*rows: RunSummary, **options: Any) -> str:
    file = io.StringIO()
    print_blocks(run_list(rows), console=Console(file=file, width=80, **options))
    return file.getvalue()


def make_row(**changes: Any) -> RunSummary:
    row = RunSummary(
        run_id=RUN_ID,
        started_unix_s=1.0,
        command=("python", "train.py", "--lr", "3e-4"),
        state=RunState.FINISHED,
        exit_code=0,
        num_steps=500,
        step_time_s=0.118,
        kind="COMPUTE_BOUND",
    )
    return replace(row, **changes)


def test_the_list_of_runs_has_a_row_a_run_and_ends_in_a_command() -> None:
    killed = make_row(state=RunState.KILLED, signal=9, num_steps=None, step_time_s=None, kind=None)
    lines = show_runs(make_row(), killed).splitlines()
    assert lines[0].split() == ["run", "end", "diagnosis", "steps", "step", "time", "command"]
    assert lines[1].split()[:6] == [RUN_ID, "finished", "compute-bound", "500", "118", "ms"]
    assert lines[2].split()[:5] == [RUN_ID, "SIGKILL", "–", "–", "–"]
    assert lines[-1].strip() == f"steptime show {RUN_ID}"


def test_the_list_names_what_the_report_opens_with() -> None:
    rows = [make_row(opens_with=word) for word in ("non_finite", "of_another_version")]
    first, second = show_runs(*rows).splitlines()[1:3]
    assert first.split()[:4] == [RUN_ID, "finished", "not", "finite"]
    assert second.split()[:3] == [RUN_ID, "finished", "compute-bound"]


def test_a_long_command_is_whole_in_a_pipe_and_cut_on_a_terminal() -> None:
    row = make_row(command=("python", "train.py", "x" * 200))
    assert show_runs(row).splitlines()[1].endswith("x" * 200)
    line = show_runs(row, force_terminal=True, color_system=None).splitlines()[1]
    assert len(line) <= 80
    assert line.endswith("…")


def test_a_store_without_runs_says_how_to_make_one() -> None:
    assert show_runs().splitlines()[-1].strip() == "steptime run -- python train.py"


IMAGES = {"rows_per_step": 64.0, "input_shapes": ("64x3x32x32 float32",)}
SAMPLES = {"rows_per_step": 62.0, "loaders": (LoaderUse(dataset="Table", batch_size=64),)}
THROUGHPUT: dict[str, tuple[dict[str, Any], str | None]] = {
    "images by their shape": (IMAGES, "640 images/s"),
    "samples by the loader": (SAMPLES, "620 samples/s"),
    "tokens": ({"tokens_per_step": 8192.0, **SAMPLES}, "81,900 tokens/s"),
    "accumulated": (SAMPLES | {"rows_per_step": 256.0, "num_backwards": 2000}, "2,560 samples/s"),
    "two views of each sample": (SAMPLES | {"rows_per_step": 128.0}, None),
    "two shapes": (IMAGES | {"input_shapes": ("64x100x1x1 float32", "64x3x32x32 float32")}, None),
    "features as wide as images": (IMAGES | {"input_shapes": ("64x16x32x32 float32",)}, None),
    "ids of four dimensions": (IMAGES | {"input_shapes": ("64x3x32x32 int64",)}, None),
    "time before batch": (SAMPLES | {"rows_per_step": 35.0, "num_backwards": 1000}, None),
    "two loaders": (SAMPLES | {"loaders": SAMPLES["loaders"] * 2}, None),
    "networks in turns": (IMAGES | {"num_optimizer_updates": 1000}, None),
    "nothing known": ({}, None),
}


@pytest.mark.parametrize("name", THROUGHPUT)
def test_a_throughput_is_told_in_the_word_that_is_true_or_not_at_all(name: str) -> None:
    fields, words = THROUGHPUT[name]
    run = healthy()
    assert run.steady is not None
    steady = replace(
        run.steady, mean_s=0.1, step_time_s=Interval(estimate=0.08, low=0.064, high=0.1, n=470)
    )
    run = replace(run, steady=steady, ranks=(replace(run.ranks[0], **fields),))
    document = describe_run(run, None)
    page = str(tiles(document))
    if words is None:
        assert document.throughput is None
        assert "throughput" not in show(run) + page
        return
    assert document.throughput is not None
    rate = document.throughput.rate
    assert (rate.low, rate.high) == pytest.approx((0.8 * rate.estimate, 1.25 * rate.estimate))
    assert re.search(
        rf"^step time .*\n(?: +.*\n)?throughput {words}  95 % interval .* \(mean step 100 ms\)$",
        show(run),
        re.MULTILINE,
    )
    number, _, unit = words.rpartition(" ")
    assert f"value='{number}', detail='{unit}'" in page
    assert encode(document).count(f'"unit": "{document.throughput.unit}"') == 1

    apart = replace(run, ranks=(run.ranks[0], replace(run.ranks[0], rank=1)), num_ranks=2)
    both = describe_run(apart, None).throughput
    assert both is not None
    assert both.rate.estimate == pytest.approx(2 * rate.estimate)
    one_unknown = (run.ranks[0], *healthy().ranks)
    assert describe_run(replace(apart, ranks=one_unknown), None).throughput is None


def test_a_rate_of_one_step_has_no_interval() -> None:
    rate = Interval(estimate=177.0, low=177.0, high=177.0, n=1)
    found = Throughput(unit="samples/s", rate=rate, mean_step_s=0.362)
    assert describe_throughput(found) == ("177 samples/s", "of one step")


def test_an_interval_is_shown_with_its_n() -> None:
    measurement = healthy()
    assert measurement.steady is not None
    steady = replace(measurement.steady, step_time_s=make_quantity(1.5, spread=0.1, n=12))
    assert "1.50 s  median of 12, 95 % interval 1.35 s to 1.65 s" in show(
        replace(measurement, steady=steady)
    )


def test_what_a_step_has_is_told_by_what_its_device_has() -> None:
    counts = {"batches": 1.0, "copies": 3.0, "gc_full": 0.25, "inner_steps": 2.0}
    found = replace(healthy(), counts_per_step=counts)
    on_cpu = replace(found, ranks=tuple(replace(one, device="cpu") for one in found.ranks))
    on_gpu = replace(found, ranks=tuple(replace(one, device="cuda") for one in found.ranks))

    assert describe_counts(on_cpu) == "batches 1 · full collections of garbage 0.25"
    assert "copies to the device 3" in describe_counts(on_gpu)
    assert describe_counts(replace(found, counts_per_step=None)) == ""


def test_the_time_between_the_phases_has_the_line_that_was_sampled_most() -> None:
    line = SpentLine(
        what="other",
        file="train.py",
        line=21,
        text="self.seen.append(x)",
        function="Metric.add",
        callee="",
        num_samples=30,
        fraction=0.2,
        growth=0.0,
    )
    spent = SpentTime(num_samples=80, num_updates=80, step_s=0.1, without_line=0.0, lines=(line,))
    measurement = builders.make_measurement(other_s=0.02)

    page = str(paint(phase_blocks(replace(measurement, spent=spent))))

    assert "train.py:21" in page
