"""Reading a run folder: whole, torn, foreign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.measure.fold.host_lines import HostLines
from steptime.measure.fold.run_records import read_records
from steptime.record.places import DETAIL, NUMBER, OPTIMIZER, SKIPPED, THREAD
from unit.builders import (
    BUCKETS,
    make_block,
    make_end,
    make_head,
    make_row,
    make_update,
    write_run,
)

COST = {"k": "o", "updates": 2, "self_ns": 5, "flush_ns": 6, "nested_calls": 7, "nested_ns": 8}


def test_every_line_of_a_rank_is_read(tmp_path: Path) -> None:
    device = [1] * len(BUCKETS)
    lines = [
        make_head(device="cuda"),
        {"k": "u", "rows": [make_row(0), make_row(1, sk=-1, th=3, o=2, is_detailed=0)]},
        {"k": "e", "n": 0, "e": [1, 2]},
        {"k": "d", "n": 1, "d": device},
        make_block(2, 4),
        {**COST, "lost_updates": 1},
        make_end(6, failures={"loader": 2}),
        {"k": "of_the_future"},
    ]
    records = read_records(write_run(tmp_path / "run", {"rank-0.jsonl": lines}))

    (stream,) = records.streams
    assert (stream.head.device, stream.head.world_size) == ("cuda", 1)
    assert list(stream.updates.column(SKIPPED)) == [0, -1]
    assert [stream.updates.column(place)[1] for place in (THREAD, OPTIMIZER)] == [3, 2]
    assert list(stream.updates.column(DETAIL)) == [1, 0]
    assert set(stream.device_ns) == {1}
    assert stream.blocks[0].round_wall_us == (10_000,) * 4
    assert stream.cost is not None
    assert stream.cost.lost_updates == 1
    assert stream.end is not None
    assert stream.end.failures == {"loader": 2}
    assert records.num_torn_lines == 0


def test_processes_workers_and_host_are_read(tmp_path: Path) -> None:
    processes = [
        {"k": "start", "pid": 1, "ppid": 0, "python": "3.11.7", "argv": [], "t": 1.0},
        {"k": "old", "pid": 2, "ppid": 1, "python": "3.8.1", "t": 1.0},
        {"k": "torch", "pid": 1, "version": "2.1.0", "t": 1.4, "too_old": True},
        {"k": "exit", "pid": 1, "t": 6.0, "updates": 5, "backwards": 4, "forwards": 3,
         "batches": 2, "failures": {}},
    ]  # fmt: skip
    worker = {"k": "head", "schema": 1, "pid": 140, "ppid": 101, "worker": 0}
    sums = {"k": "w", "pid": 140, "batches": 1, "fetch_ns": 5, "collate_ns": 6, "cpu_ns": 7}
    successor = [{**worker, "pid": 150}, {**sums, "pid": 150, "batches": 3}]
    host = {"k": "h", "t_unix_s": 5, "dt_s": 1, "busy_cores": 1.9, "job_cores": 1}
    folder = write_run(
        tmp_path / "run",
        {
            "processes.jsonl": processes,
            "worker-101-0.jsonl": [worker, sums, {**sums, "batches": 2}, *successor],
            "worker-101-1.jsonl": [{**worker, "worker": 1}],
            "host.jsonl": [{"k": "head", "schema": 1, "num_cores": 2}, host],
        },
    )

    records = read_records(folder)

    assert [(start.k, start.python) for start in records.starts] == [
        ("start", "3.11.7"),
        ("old", "3.8.1"),
    ]
    assert records.torches[0].too_old
    assert records.exits[0].forwards == 3
    assert [(head.pid, sums.batches) for head, sums in records.workers] == [(140, 2), (150, 3)]
    assert (records.host.num_cores, records.host.samples[0].busy_cores) == (2, 1.9)


def test_a_folder_with_the_command_alone_is_an_empty_record(tmp_path: Path) -> None:
    records = read_records(write_run(tmp_path / "run", {"processes.jsonl": []}))

    assert (records.streams, records.host) == ((), HostLines())


@pytest.mark.parametrize(
    "line",
    [
        '{"k": "u", "n": 1, "th": 0, "o"',
        "\x00\x00\x00\n",
        "[" * 100_000 + "\n",
        "[1, 2]\n",
        '{"no": "kind"}\n',
        '{"k": ["u"]}\n',
        '{"k": "d", "n": 1}\n',
        '{"k": "d", "n": 1.5, "d": []}\n',
        '{"k": "o", "updates": 1}\n',
        '{"k": "end", "updates": "many"}\n',
        '{"k": "u"}\n',
        '{"k": "u", "rows": 3}\n',
        '{"k": "u", "rows": [null]}\n',
        '{"k": "u", "rows": ["some text"]}\n',
        '{"k": "m", "t": 5, "rss": 7}\n',
        '{"k": "m", "t": 5, "bucket": 0, "rss": 7.5}\n',
        '{"k": "s", "updates": 0, "sites": []}\n',
        '{"k": "s", "updates": 4}\n',
        '{"k": "s", "updates": 4, "sites": [["sync", "train.py", 31, 31, 4]]}\n',
        '{"k": "s", "updates": 4, "sites": [["sync", "train.py", 31, null, 4, null]]}\n',
        '{"k": "a", "sites": [["evaluation", "train.py", 31, 31, 4, 2.5]]}\n',
        '{"k": "a", "sites": {"evaluation": 3}}\n',
        '{"k": "ops", "num": "many"}\n',
        '{"k": "c", "graphs": 4, "breaks": []}\n',
        '{"k": "c", "graphs": 4, "breaks": [["why", "train.py", null, 3]], "recompiles": []}\n',
        '{"k": "q", "on": "anomaly_mode"}\n',
        '{"k": "q", "on": [1]}\n',
        json.dumps(make_update(1, w=[1, 2])) + "\n",
        json.dumps(make_update(1, w=[0.5] * len(BUCKETS))) + "\n",
        json.dumps({**make_block(1, 3), "rw": [1, 2]}) + "\n",
        json.dumps({**make_block(1, 3), "row": [1, 2]}) + "\n",
    ],
)
def test_a_line_that_cannot_be_read_is_skipped_and_counted(tmp_path: Path, line: str) -> None:
    lines = [
        make_head(),
        make_update(0),
        line if line.endswith("\n") else line + "\n",
        make_update(2),
    ]

    records = read_records(write_run(tmp_path / "run", {"rank-0.jsonl": lines}))

    assert list(records.streams[0].updates.column(NUMBER)) == [0, 2]
    assert records.num_torn_lines == 1


def test_a_process_line_that_cannot_be_read_is_skipped_and_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", {"processes.jsonl": [{"k": "start", "pid": 1}]})

    records = read_records(folder)

    assert (records.starts, records.num_torn_lines) == ((), 1)


def test_bytes_that_are_no_text_are_skipped(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", {"rank-0.jsonl": [make_head()]})
    with (folder / "rank-0.jsonl").open("ab") as file:
        file.write(b'{"k": "\xff\xfe"}\n\n  \n')

    assert read_records(folder).num_torn_lines == 1


@given(cut=st.integers(1, 2000))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_cut_anywhere_keeps_all_lines_before_the_cut(tmp_path: Path, cut: int) -> None:
    whole = "".join(json.dumps(line) + "\n" for line in [make_head(), *map(make_update, range(4))])
    folder = write_run(tmp_path / "run", {"rank-0.jsonl": [whole[:-cut]]})

    records = read_records(folder)

    num_whole = whole[:-cut].count("\n")
    updates = records.streams[0].updates if records.streams else ()
    # The line that was cut may have lost its newline alone.
    assert len(updates) in {max(0, num_whole - 1), num_whole}
    assert len(updates) + records.num_torn_lines >= num_whole - 1


def test_without_its_head_a_file_cannot_be_understood(tmp_path: Path) -> None:
    files = {
        "rank-0.jsonl": [make_update(0), make_update(1)],
        "rank-1.jsonl": [{"k": "head", "schema": 1, "pid": "?"}, make_update(0)],
        "rank-2.jsonl": [],
        "worker-101-1.jsonl": [{"k": "w"}],
        "host.jsonl": ["?\n"],
    }

    records = read_records(write_run(tmp_path / "run", files))

    assert records.streams == ()
    assert records.num_torn_lines == 2 + 2 + 1 + 1


@pytest.mark.parametrize("name", ["rank-0.jsonl", "worker-101-7.jsonl", "host.jsonl"])
def test_a_newer_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "run", {name: [{"k": "head", "schema": 2}]})

    with pytest.raises(DamagedRunError, match=rf"{name}: schema 2 is newer"):
        read_records(folder)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedRunError, match="is no run folder"):
        read_records(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00"])
def test_a_command_that_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "command.json").write_text(text)

    with pytest.raises(DamagedRunError, match="is not JSON"):
        read_records(tmp_path)


def test_a_command_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "command.json").write_text('{"command": "ls"}')

    with pytest.raises(DamagedRunError, match="not written by Steptime"):
        read_records(tmp_path)


def test_a_folder_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run folder at"):
        read_records(tmp_path / "gone")


def test_a_file_that_cannot_be_read_is_an_error_of_the_store(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", {})
    (folder / "rank-0.jsonl").mkdir()

    with pytest.raises(StoreError, match="cannot read the run"):
        read_records(folder)
