"""What the passes over a loader say together: bottleneck, bound, workers, and the words for it."""

import io
import json
from argparse import Namespace

import pytest
from rich.console import Console

from steptime.cli.data import data_bench
from steptime.core.codec import from_json, to_json
from steptime.measure.tried.bench_lines import PassLines, make_loader_bench
from steptime.measure.tried.bench_steps import mean_interval
from steptime.measure.values.loader_bench import LoaderBench
from steptime.report.blocks.data.loader_report import loader_report
from steptime.report.document.data_documents import LoaderDocument, loader_envelope
from steptime.report.html.paint_html import paint_page
from steptime.report.text.paint_text import print_report
from steptime.report.words.data.loader_words import describe_bottleneck, next_commands
from unit.loader_bench_cases import BESIDE, LOADER, MS, SLOW, loop, read, uneven

LEVERS = ("dataset_cache", "dataloader", "prefetch_to_device", "whole_batch_fetch")


def bench_of(full, consumer, *parts, num_cores=4):
    lines = PassLines(full=[full], consumer=[consumer] if consumer else [], parts=parts)
    return make_loader_bench(("python", "train.py"), lines, num_cores=num_cores)


def text_of(bench):
    console = Console(file=io.StringIO(), width=100, _environ={})
    print_report(loader_report(bench, levers=LEVERS), console=console)
    return console.file.getvalue()


@pytest.mark.parametrize("name", SLOW)
def test_the_slowest_part_is_the_bottleneck(name):
    bench = bench_of(loop(2, 10), loop(2, 0, what="consumer"), SLOW[name])

    assert bench.bottleneck == name
    assert bench.bound.estimate == pytest.approx(6.0)
    assert bench.bound.low <= 6.0 <= bench.bound.high


def test_a_slow_copy_is_the_bottleneck_beside_many_workers():
    many = {"loader": {**LOADER, "num_workers": 4}}
    full = loop(9, 1, copies_ns=30 * 5 * MS, **many)
    bench = bench_of(full, loop(4, 0, what="consumer"), SLOW["fetch"])

    assert bench.bottleneck == "copy"
    assert bench.part("copy").wall_s == pytest.approx(0.005)


def test_a_training_that_does_not_wait_is_told_that_no_loader_helps():
    bench = bench_of(loop(10, 0.1), loop(10, 0, what="consumer"), SLOW["fetch"])

    assert bench.bottleneck == "consumer"
    assert "No loader helps" in describe_bottleneck(bench)
    assert next_commands(bench, levers=LEVERS) == []
    assert "steptime tune" not in text_of(bench)


def test_transforms_have_their_names_and_lines():
    bench = bench_of(loop(2, 10), loop(2, 0, what="consumer"), SLOW["transform"])

    crop, flip = bench.transforms
    assert (crop.name, crop.place, flip.place) == ("Crop", "train.py:7", None)
    assert crop.wall_s == pytest.approx(0.005)
    assert bench.part("transform").wall_s == pytest.approx(0.008)
    assert "Crop (train.py:7)" in text_of(bench)


def test_workers_that_keep_up_follow_from_the_parts():
    bench = bench_of(loop(2, 10), loop(2, 0, what="consumer"), SLOW["fetch"], num_cores=8)
    few = bench_of(loop(2, 10), loop(2, 0, what="consumer"), SLOW["fetch"], num_cores=2)

    assert (bench.workers_needed, bench.cores_needed) == (5, pytest.approx(5.0))
    assert "5 workers keep up with the training (5 of 8 cores busy)" in text_of(bench)
    assert "No number of workers keeps up" in text_of(few)


def test_cold_times_are_there_only_if_a_disk_was_read():
    cold = read("cold", fetch=20, decode=1, collate=1)
    kept = read("cold", fetch=8, decode=1, collate=1, read_bytes=0)
    steps = loop(2, 10), loop(2, 0, what="consumer")

    assert bench_of(*steps, SLOW["fetch"], cold).part("fetch").cold_wall_s == pytest.approx(0.02)
    in_memory = bench_of(*steps, SLOW["fetch"], kept)
    assert in_memory.part("fetch").cold_wall_s is None
    assert "cold_kept_in_memory" in in_memory.notes


def test_chunks_that_do_not_match_what_is_read_are_named():
    steps = loop(2, 10), loop(2, 0, what="consumer")
    told = [
        text_of(bench_of(*steps, {**SLOW["fetch"], "chunk_bytes": [100, num]}))
        for num in (400, 401)
    ]

    assert ["The chunks of the HDF5 file do not match" in text for text in told] == [False, True]


def test_without_the_pass_with_a_kept_batch_the_work_between_batches_stands_in():
    bench = bench_of(loop(2, 10), None, SLOW["fetch"])

    assert bench.consumer_s.estimate == pytest.approx(0.002)
    assert "consumer_beside_loader" in bench.notes


def test_batches_that_cannot_be_read_apart_leave_the_bound():
    failed = {"k": "pass", "pass": "warm", "num_files": 0, "error": "OSError: gone"}
    bench = bench_of(loop(2, 10), loop(2, 0, what="consumer"), failed)

    assert bench.parts[0].name == "pin"
    assert bench.bottleneck is None
    assert bench.bound.estimate == pytest.approx(6.0)
    assert "OSError: gone" in text_of(bench)


def test_epochs_of_one_batch_have_no_step():
    bench = bench_of(loop(2, 10, steps=[]), None, SLOW["fetch"])

    assert bench.step_s is None
    assert bench.missing["step_s"] == "short_epochs"
    assert "no step was timed" in text_of(bench)


def test_the_curve_is_measured_if_it_was_asked_for():
    asked = {"k": "workers", "num_workers": 2, "batches": 10, "took_ns": 100 * MS}
    steps = loop(2, 10), loop(2, 0, what="consumer")

    measured = bench_of(*steps, SLOW["fetch"], asked).curve
    predicted = bench_of(*steps, SLOW["fetch"]).curve
    assert [(one.num_workers, one.is_measured) for one in measured] == [(2, True)]
    assert measured[0].batches_per_s == pytest.approx(100)
    assert [one.num_workers for one in predicted] == [0, 1, 2, 4]
    assert predicted[-1].batches_per_s == pytest.approx(400)
    assert not predicted[0].is_measured


@pytest.mark.parametrize(
    ("word", "detail", "told"),
    [
        ("no_loader", "201", "201 steps without a batch of a torch DataLoader"),
        ("not_trained", "7", "gave 7 batches"),
        ("few_batches", "1", "ended after 1 batches"),
        ("command_failed", "exit code 1: boom", "exit code 1: boom"),
        ("no_steps", "", "without a step"),
    ],
)
def test_a_command_without_a_loader_is_told_what_was_seen(word, detail, told):
    bench = LoaderBench(
        command=("python", "train.py"),
        loader=None,
        num_cores=4,
        missing={"loader": word},
        details={"loader": detail},
    )

    assert told in describe_bottleneck(bench)
    envelope = loader_envelope(LoaderDocument(bench=bench), exit_code=4)
    assert (envelope.status.value, envelope.errors[0].code) == ("partial", word)


@pytest.mark.parametrize(
    ("word", "code"), [("no_loader", 4), ("no_steps", 4), ("command_failed", 3), ("own_failure", 1)]
)
def test_what_could_not_be_measured_ends_alike(word, code, capsys):
    bench = LoaderBench(command=("x",), loader=None, num_cores=4, missing={"loader": word})

    assert data_bench._report(Namespace(json="-"), bench, page=None) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_a_bench_survives_its_document():
    bench = bench_of(loop(2, 10), loop(2, 0, what="consumer"), SLOW["transform"])

    assert from_json(LoaderBench, to_json(bench)) == bench


def test_the_mean_counts_what_one_step_in_four_waits_for():
    times = [0.001, 0.001, 0.001, 0.009] * 20

    assert mean_interval(times).estimate == pytest.approx(0.003, rel=0.01)


def test_the_page_shows_parts_and_curve_and_makes_no_markup_of_names():
    evil = read("cached", transforms=[{"name": "<b>Crop", "place": "t.py:7"}], transform_0=5)
    bench = bench_of(loop(2, 10), loop(2, 0, what="consumer"), {**evil, "num_files": 3})
    page = paint_page(loader_report(bench, levers=LEVERS))

    for told in ("The step waits for transform", "<svg", "t.py:7"):
        assert told in page
    assert "<b>Crop" not in page
    assert "&lt;b&gt;Crop" in page


def test_the_page_of_a_bench_without_parts_has_the_bound_alone():
    failed = {"k": "pass", "pass": "warm", "num_files": 0, "error": "OSError: gone"}
    bench = bench_of(loop(2, 10), loop(2, 0, what="consumer"), failed)
    page = paint_page(loader_report(bench, levers=LEVERS))

    assert "upper bound" in page
    assert "<svg" not in page


def test_a_bound_whose_interval_reaches_both_answers_names_nothing():
    full = uneven(loop(0, 0.5, **BESIDE), low=6, high=14)
    bench = bench_of(full, uneven(loop(0, 0, what="consumer"), low=6, high=14), SLOW["fetch"])

    assert bench.bound.low < 1.05 <= bench.bound.high
    assert (bench.bottleneck, bench.missing["bottleneck"]) == (None, "unclear")
    assert "not clear whether a loader helps" in describe_bottleneck(bench)
    assert next_commands(bench, levers=LEVERS) == []


def test_a_bound_by_estimate_alone_is_not_enough_for_either_answer():
    full = uneven(loop(0, 1.0, **BESIDE), low=6, high=14)
    bench = bench_of(full, uneven(loop(0, 0, what="consumer"), low=6, high=14), SLOW["fetch"])

    assert bench.bound.estimate > 1.05
    assert bench.bottleneck is None


def test_windows_that_were_taken_again_count_together():
    full, kept = loop(10, 0.1, **BESIDE), loop(10, 0, what="consumer")
    lines = PassLines(full=[full, full, full], consumer=[kept, kept], parts=[SLOW["fetch"]])
    bench = make_loader_bench(("python", "train.py"), lines, num_cores=4)

    assert (bench.step_s.n, bench.consumer_s.n) == (90, 60)
    assert bench.bottleneck == "consumer"


def test_a_neighbor_between_the_passes_is_no_bottleneck_of_a_loader_without_workers():
    bench = bench_of(loop(11, 0.1), loop(10, 0, what="consumer"), SLOW["fetch"])
    beside = bench_of(loop(11, 0.1, **BESIDE), loop(10, 0, what="consumer"), SLOW["fetch"])

    assert bench.bottleneck == "consumer"
    assert bench.bound.estimate == pytest.approx(11.1 / 11)
    assert "bound_by_waits" in bench.notes
    assert "neighbor" in text_of(bench)
    assert beside.bottleneck == "fetch"


def test_a_copy_that_a_kept_batch_saves_is_part_of_the_bound():
    bench = bench_of(
        loop(9, 0.1, copies_ns=30 * 5 * MS), loop(4, 0, what="consumer"), SLOW["fetch"]
    )

    assert bench.bound.estimate == pytest.approx(9.1 / 4)
    assert "bound_by_waits" not in bench.notes
