"""Levers of the loader, applied for real: the same training from fewer or other reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    SPECIMENS,
    fork_bare,
    is_fast,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
    start_bare,
)
from steptime.levers import file_of, load

pytestmark = [needs_torch, needs_linux]

Settings = Mapping[str, int | bool]
Try = Callable[..., dict[str, Any]]

WORKERS: Settings = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 2}
ONE_WORKER = {**WORKERS, "num_workers": 1}
NO_WORKERS: Settings = {"num_workers": 0}
CACHE = {"limit_bytes": 1 << 20}
SMALL_CACHE = {"limit_bytes": 3000}
DISK: Settings = {"limit_bytes": 1 << 20, "is_on_disk": True}
NUM_READS = 3 * 40  # epochs times samples


EXACT: tuple[tuple[str, str, Settings], ...] = (
    ("dataloader", "rows", WORKERS),
    ("dataloader", "own_generator", WORKERS),
    ("dataloader", "scaled", WORKERS),
    ("dataloader", "kept_by_the_script", ONE_WORKER),
    ("dataloader", "kept_by_the_script", NO_WORKERS),
    ("dataloader", "workers", NO_WORKERS),
    ("dataloader", "in_place", WORKERS),
    ("dataloader", "read_twice_at_once", WORKERS),
    ("whole_batch_fetch", "tensors", {}),
    ("whole_batch_fetch", "subset", {}),
    ("whole_batch_fetch", "tensors_workers", {}),
    ("whole_batch_fetch", "rows_subset", {}),
    *(
        ("dataset_cache", case, CACHE)
        for case in (
            *("plain", "plain_subset", "plain_workers", "plain_kept_workers", "plain_scaled"),
            *(
                "global",
                "global_workers",
                "plain_in_place",
                "drawn",
                "drawn_workers",
                "drawn_scaled",
                "drawn_twice",
            ),
            *("rows", "noisy", "fickle", "shared", "in_place_one", "tensors", "list", "unhashable"),
        )
    ),
    ("dataset_cache", "plain_workers", DISK),
    ("dataset_cache", "drawn", DISK),
    ("preloaded_samples", "plain", CACHE),
    ("preloaded_samples", "plain_subset", CACHE),
    ("preloaded_samples", "plain_workers", CACHE),
    ("preloaded_samples", "plain_kept_workers", CACHE),
    ("preloaded_samples", "plain_scaled", CACHE),
    ("preloaded_samples", "plain", SMALL_CACHE),
    ("preloaded_samples", "rows", CACHE),
    ("preloaded_samples", "noisy", CACHE),
    ("preloaded_samples", "fickle", CACHE),
    ("preloaded_samples", "shared", CACHE),
    ("preloaded_samples", "in_place", CACHE),
    ("preloaded_samples", "in_place_one", CACHE),
    ("preloaded_samples", "own_generator", CACHE),
    ("preloaded_samples", "read_twice_at_once", CACHE),
    ("preloaded_samples", "tensors", CACHE),
    ("preloaded_samples", "list", CACHE),
    ("preloaded_samples", "unhashable", CACHE),
    *(
        ("preloaded_samples", case, CACHE)
        for case in ("own_stack", "own_stack_workers", "own_method")
    ),
    *(
        ("preloaded_samples", case, CACHE)
        for case in ("plain_in_place", "by_label", "centered", "counted")
    ),
)
SWITCHED = tuple(
    (name, case, settings, how)
    for name, cases, settings in (
        ("whole_batch_fetch", ("tensors", "subset", "noisy"), {}),
        (
            "dataset_cache",
            ("plain", "plain_workers", "noisy", "plain_scaled", "drawn", "own_generator"),
            CACHE,
        ),
        (
            "preloaded_samples",
            (
                *("plain", "plain_subset", "plain_scaled", "noisy", "fickle", "shared"),
                *("own_generator", "own_stack", "own_method", "by_label"),
            ),
            CACHE,
        ),
    )
    for case in cases
    for how in ("live", "trial")
)
OTHERS: tuple[tuple[str, str, Settings], ...] = (
    ("dataloader", "noisy", WORKERS),
    ("dataset_cache", "plain", SMALL_CACHE),
)


@pytest.fixture(scope="module")
def try_lever(tmp_path_factory: pytest.TempPathFactory) -> Try:
    """What came of a case that was trained bare, with the lever, and once it was taken back."""
    tries = EXACT + OTHERS + SWITCHED
    folder = tmp_path_factory.mktemp("levers")
    start = fork_bare if is_fast() else start_bare
    done = start(folder, "python", SCRIPTS / "loader_levers.py", json.dumps(tries)).finish()
    assert done.exit_code == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    return lambda *one: found[tries.index(one)]


@pytest.mark.parametrize(("name", "case", "settings"), EXACT)
@pytest.mark.slow("every case is trained three times, with workers")
@pytest.mark.core
def test_the_training_is_the_same_bit_for_bit(
    try_lever: Try, name: str, case: str, settings: Settings
) -> None:
    found = try_lever(name, case, settings)

    assert found["changed"] == found["bare"]


@pytest.mark.parametrize("one", SWITCHED, ids=str)
def test_switched_between_two_steps_the_training_is_the_same_bit_for_bit(
    try_lever: Try, one: tuple[str, str, Settings, str]
) -> None:
    found = try_lever(*one)

    assert found["changed"] == found["bare"]
    assert found["after"] == found["bare"]


def test_workers_read_in_the_place_of_the_training_process_and_are_kept(try_lever: Try) -> None:
    found = try_lever("dataloader", "rows", WORKERS)

    assert (found["num_workers"], found["num_reads"], found["num_alive"]) == (2, 0, 2)


def test_workers_can_be_taken_away(try_lever: Try) -> None:
    found = try_lever("dataloader", "workers", NO_WORKERS)

    assert (found["num_workers"], found["num_reads"], found["num_alive"]) == (0, NUM_READS, 0)


def test_workers_that_the_script_keeps_are_not_taken_away(try_lever: Try) -> None:
    assert try_lever("dataloader", "kept_by_the_script", NO_WORKERS)["num_workers"] == 2


def test_with_augmentation_in_workers_the_draws_are_others(try_lever: Try) -> None:
    found = try_lever("dataloader", "noisy", WORKERS)

    assert found["changed"]["batches"] != found["bare"]["batches"]


def test_all_samples_are_made_once_and_no_workers_start(try_lever: Try) -> None:
    checked = 10  # of as many batches in the second epoch and the third, a sample is read again
    for case, num in (("plain", 40), ("plain_workers", 40), ("plain_subset", 29)):
        found = try_lever("preloaded_samples", case, CACHE)
        again = {"plain": checked, "plain_workers": 15, "plain_subset": 8}[case]

        assert found["num_reads"] == num + again  # a child read some before
        assert found["num_alive"] == 0


def test_a_collate_of_the_script_that_gives_each_sample_its_row_is_left_out_as_well(
    try_lever: Try,
) -> None:
    checked = 10 * 8  # whole batches of the second epoch and the third
    own = {"own_stack": 40 + checked, "own_stack_workers": 40 + 15 * 8, "own_method": 29 + 58}
    for case, num_reads in own.items():
        assert try_lever("preloaded_samples", case, CACHE)["num_reads"] == num_reads
    for case in ("by_label", "centered", "counted"):
        assert try_lever("preloaded_samples", case, CACHE)["num_reads"] >= NUM_READS


@pytest.mark.parametrize("case", ["noisy", "fickle", "rows"])
def test_what_differs_from_reading_to_reading_or_counts_its_reads_is_not_kept(
    try_lever: Try, case: str
) -> None:
    assert try_lever("preloaded_samples", case, CACHE)["num_reads"] >= NUM_READS


@pytest.mark.parametrize(
    ("case", "settings"), [("plain", CACHE), ("drawn", CACHE), ("drawn", DISK)]
)
def test_a_kept_sample_is_read_once_and_now_and_then_compared(
    try_lever: Try, case: str, settings: Settings
) -> None:
    reads = try_lever("dataset_cache", case, settings)["num_reads"]

    assert reads == 40 + 16 + 1  # the first that are read again, and one in 64 later


def test_workers_take_what_others_have_kept(try_lever: Try) -> None:
    for case in ("plain_workers", "drawn_workers"):
        found = try_lever("dataset_cache", case, CACHE)
        assert found["num_reads"] == 0  # the training process reads none
        assert found["num_kept"] == 40


def test_a_store_that_is_full_leaves_the_rest_to_the_data_set(try_lever: Try) -> None:
    found = try_lever("dataset_cache", "plain", SMALL_CACHE)

    assert found["changed"] == found["bare"]
    assert 40 + 16 + 1 < found["num_reads"] < NUM_READS


@pytest.mark.parametrize("case", ["noisy", "fickle", "shared", "drawn_twice", "rows"])
def test_samples_that_differ_or_count_their_reads_are_read_each_time(
    try_lever: Try, case: str
) -> None:
    assert try_lever("dataset_cache", case, CACHE)["num_reads"] == NUM_READS


@pytest.mark.parametrize("case", ["plain_scaled", "drawn_scaled"])
def test_samples_that_the_script_scales_anew_are_read_anew(try_lever: Try, case: str) -> None:
    assert try_lever("dataset_cache", case, CACHE)["num_reads"] >= NUM_READS


@pytest.mark.parametrize(
    "name", ["dataloader", "whole_batch_fetch", "dataset_cache", "preloaded_samples"]
)
def test_what_a_lever_changed_is_taken_back(try_lever: Try, name: str) -> None:
    settings = {"dataloader": WORKERS, "whole_batch_fetch": {}}.get(name, CACHE)
    plain = dict.fromkeys(("preloaded_samples", "dataset_cache"), "plain")
    cases = {"whole_batch_fetch": "tensors", **plain}
    case = cases.get(name, "rows")
    found = try_lever(name, case, settings)

    assert found["after"] == found["bare"]


# -- in the user's process, put on by a plan


def run_with(folder: Path, specimen: str, name: str, settings: Settings) -> bytes:
    """What the specimen prints in a trial with the lever."""
    asked = {"name": name, "settings": dict(settings), "file": file_of(load(name))}
    plan = {"schema": 1, "mode": "trial", "levers": [asked], "is_live": False, "quality": None}
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan))
    script = str(SPECIMENS / f"{specimen}.py")
    variables = {"STEPTIME_PLAN": str(folder / "plan.json")}
    done = run_forked(folder, "python", script, **variables)
    assert done.exit_code == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize(
    ("specimen", "name", "settings"),
    [
        ("waiting_samples", "dataloader", WORKERS),
        ("waiting_samples", "dataset_cache", CACHE),
        ("waiting_samples", "preloaded_samples", CACHE),
        ("tensor_rows", "whole_batch_fetch", {}),
    ],
)
def test_in_a_trial_the_script_prints_what_it_printed(
    tmp_path: Path, specimen: str, name: str, settings: Settings
) -> None:
    bare = fork_bare(tmp_path / "bare", "python", SPECIMENS / f"{specimen}.py").finish()
    stdout = run_with(tmp_path / "tried", specimen, name, settings)

    assert stdout == bare.stdout
    found = rows(run_folder(tmp_path / "tried") / "rank-0.jsonl")
    (line,) = [row for row in found if row["k"] == "lever"]
    assert (line["name"], line["error"]) == (name, None)
    files = run_folder(tmp_path / "tried").glob("worker-*.jsonl")
    by_workers = [rows(file)[-1]["batches"] for file in files]
    assert len(by_workers) == settings.get("num_workers", 0)
    assert sum(by_workers) in (0, 4 * 8)  # epochs times batches


@pytest.mark.slow("it changes the workers of a loader for two seconds")
@pytest.mark.serial  # the training is slower than its loader beside other tests
def test_numbers_of_workers_are_tried_while_a_script_trains(tmp_path: Path) -> None:
    plan = {"schema": 1, "mode": "trial", "levers": [], "worker_search_s": 2.0}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    variables = {"STEPTIME_PLAN": str(tmp_path / "plan.json")}
    script = SPECIMENS / "waiting_samples.py"
    done = run_forked(tmp_path / "run", "python", script, **variables)

    assert done.exit_code == 0, done.stderr.decode()
    found = json.loads((run_folder(tmp_path / "run") / "workers.json").read_text())
    assert found["rates"][0]["num_workers"] == 0
    assert all(row["batches_per_s"] > 0 for row in found["rates"])
    assert found["consumer_per_s"] > found["rates"][0]["batches_per_s"]
