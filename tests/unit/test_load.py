"""The load of the machine and its memory, and the Pythons that nobody watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from steptime.core.note import Note
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import read_records
from steptime.measure.values.machine_load import HostLoad
from steptime.report.words.run.run_words import describe_note
from unit.builders import Line, make_head, make_update, write_run

HEAD: Line = {"k": "head", "schema": 1, "num_cores": 4}


def make_sample(t_unix_s: float, **fields: float | None) -> Line:
    cores = {"busy_cores": 3.0, "job_cores": 1.0}
    return {"k": "h", "t_unix_s": t_unix_s, "dt_s": 1.0, **cores, **fields}


def load_of(folder: Path, *samples: Line, num_updates: int = 0) -> HostLoad | None:
    """The load of a run of so many updates, 10 ms each, that began at 1000."""
    files: dict[str, list[Line]] = {"host.jsonl": [HEAD, *samples]}
    if num_updates:
        files["rank-0.jsonl"] = [make_head(), *map(make_update, range(num_updates))]
    return measure(read_records(write_run(folder / "run", files))).host


@pytest.mark.parametrize("num_updates", [0, 1])
def test_a_run_without_a_window_has_the_load_of_all_of_it(tmp_path: Path, num_updates: int) -> None:
    samples = [make_sample(1.0), make_sample(2.0, busy_cores=4.0)]
    found = load_of(tmp_path, *samples, num_updates=num_updates)
    assert found == HostLoad(num_cores=4, job_cores=1.0, others_cores=2.5, num_samples=2)


def test_a_kill_after_the_window_counts(tmp_path: Path) -> None:
    samples = [make_sample(1001.0, oom_kills=0), make_sample(1009.0, oom_kills=1)]
    found = load_of(tmp_path, *samples, num_updates=100)
    assert found is not None
    assert (found.num_oom_kills, found.num_samples) == (1, 1)


def test_the_least_memory_of_the_whole_run_counts(tmp_path: Path) -> None:
    samples = [make_sample(1001.0, available_bytes=50), make_sample(1009.0, available_bytes=7)]
    found = load_of(tmp_path, *samples, num_updates=100)
    assert found is not None
    assert found.min_available_bytes == 7


def test_swapping_is_the_mean_over_the_window(tmp_path: Path) -> None:
    samples = [make_sample(1000.5, swap_in_bytes=4000), make_sample(1001.5, swap_in_bytes=0)]
    samples += [make_sample(1009.0, swap_in_bytes=10**9)]
    found = load_of(tmp_path, *samples, num_updates=100)
    assert found is not None
    assert found.swap_in_bytes_per_s == pytest.approx(4000 * 0.49 / 0.99, rel=1e-3)


def test_what_no_sample_says_is_not_known(tmp_path: Path) -> None:
    found = load_of(tmp_path, make_sample(1001.0, swap_in_bytes=None), num_updates=100)
    assert found is not None
    assert found.swap_in_bytes_per_s is None
    assert (found.min_available_bytes, found.num_oom_kills) == (None, None)


def test_a_clock_that_stood_still_gives_no_load(tmp_path: Path) -> None:
    assert load_of(tmp_path, make_sample(1.0, dt_s=0.0)) is None


def test_a_machine_that_was_seen_for_a_part_of_the_window_has_no_load(tmp_path: Path) -> None:
    files: dict[str, list[Line]] = {
        "host.jsonl": [HEAD, make_sample(1000.2), make_sample(1000.3, dt_s=0.1)],
        "rank-0.jsonl": [make_head(), *map(make_update, range(100))],
    }
    found = measure(read_records(write_run(tmp_path / "run", files)))
    assert found.host is None
    (note,) = [note for note in found.notes if note.code == "host_unobserved"]
    assert describe_note(note).startswith("The machine was observed for 2")


# -- Pythons without a guest


def notes_of(folder: Path, *, pids: tuple[int, ...], starts: tuple[int, ...]) -> tuple[Note, ...]:
    lines = [{"k": "g", "pid": pid, "name": "python3.11"} for pid in pids]
    begun = [{"k": "start", "pid": pid, "python": "3.11.7"} for pid in starts]
    files = {"host.jsonl": [HEAD, *lines], "processes.jsonl": begun}
    return measure(read_records(write_run(folder / "run", files))).notes


def test_pythons_without_a_guest_are_counted_by_name(tmp_path: Path) -> None:
    found = notes_of(tmp_path, pids=(7, 8), starts=(100,))
    facts = {"count": 2, "names": "python3.11"}
    assert Note(code="python_without_guest", facts=facts) in found


def test_it_is_said_in_the_place_of_no_python_seen(tmp_path: Path) -> None:
    assert [note.code for note in notes_of(tmp_path, pids=(7,), starts=())] == [
        "python_without_guest"
    ]


def test_one_that_was_slow_to_begin_is_not_missed(tmp_path: Path) -> None:
    codes = {note.code for note in notes_of(tmp_path, pids=(7,), starts=(7,))}
    assert "python_without_guest" not in codes


# -- a record that somebody else changed


def test_a_changed_record_is_told_with_its_files(tmp_path: Path) -> None:
    lines = [{"k": "changed", "name": f"rank-{rank}.jsonl"} for rank in (1, 0)]
    files = {"host.jsonl": [HEAD, *lines]}
    found = measure(read_records(write_run(tmp_path / "run", files))).notes

    note = Note(code="record_changed", facts={"files": "rank-0.jsonl, rank-1.jsonl"})
    assert note in found
    assert describe_note(note).startswith("rank-0.jsonl, rank-1.jsonl: changed while the command")


# -- devices that could not be asked


@pytest.mark.parametrize(
    ("device", "missing", "expected"),
    [
        ("cuda", "no_binding", {"no_nvml_binding"}),
        ("cuda", "nvml_error_9", {"nvml_failed"}),
        ("cpu", "no_binding", set()),
    ],
)
def test_a_device_that_nobody_could_ask_is_said(
    tmp_path: Path, device: str, missing: str, expected: set[str]
) -> None:
    files = {
        "host.jsonl": [HEAD, {"k": "dm", "missing": missing}],
        "rank-0.jsonl": [make_head(device=device), make_update(0)],
    }
    notes = measure(read_records(write_run(tmp_path / "run", files))).notes
    assert {note.code for note in notes} & {"no_nvml_binding", "nvml_failed"} == expected
