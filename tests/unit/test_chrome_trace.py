"""The trace of a run, held to the fields that the format documents."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from steptime.cli.main import main
from steptime.export.chrome_trace import chrome_trace
from steptime.measure.values.over_time import (
    DevicePoint,
    Event,
    HostPoint,
    RunSeries,
    Slice,
    StepPoint,
)
from unit.builders import Line, make_head, make_update, write_run

T = 1000.0  # small, so that microseconds are exact

# Google, "Trace Event Format": what each kind of event must have. Counters have no thread.
FIELDS = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "i": {"name", "cat", "ph", "ts", "s", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "ts", "pid", "tid", "args"},
}
METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


def make_step(index: int, *, rank: int = 0, time_s: float = 0.01, **fields: Any) -> StepPoint:
    values: dict[str, Any] = {"wall_s": {"forward": time_s}, "is_steady": True}
    return StepPoint(
        rank=rank,
        index=index,
        end_unix_s=T + (index + 1) * time_s,
        step_time_s=time_s,
        **values | fields,
    )


def make_host(t_s: float = 1.0, **fields: Any) -> HostPoint:
    cores = {"busy_cores": 1.5, "job_cores": 1.0}
    return HostPoint(t_unix_s=T + t_s, dt_s=1.0, **cores | fields)


def check(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The events, if the document is what the format and its readers ask for."""
    text = json.dumps(document, allow_nan=False)
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        assert set(event) == FIELDS[event["ph"]], event
        assert event["ts"] >= 0
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0, "0 is the kernel's own"
        if event["ph"] == "M":
            assert event["name"] in METADATA
        if event["ph"] == "i":
            assert event["s"] == "t"
        if event["ph"] == "C":
            assert event["args"]
            assert all(type(v) in (int, float) and math.isfinite(v) for v in event["args"].values())
        if event["ph"] == "X":
            assert event["dur"] > 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        for (_, end), (begin, _) in pairwise(spans):
            assert begin >= end - 1e-6, "slices of a track are in order and do not overlap"
    return events


def slices_in(events: Sequence[dict[str, Any]]) -> list[tuple[str, float, float]]:
    return [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]


def test_ranks_are_processes_with_named_tracks() -> None:
    steps = (make_step(0), make_step(0, rank=1))
    events = check(chrome_trace(RunSeries(steps=steps), run_id="r"))
    names = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"}
    assert names == {(1000, "rank 0"), (1001, "rank 1")}
    threads = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert threads == {(1000, "steps"), (1001, "steps")}


def test_a_step_is_a_slice_with_its_marks_and_phases() -> None:
    events = check(chrome_trace(RunSeries(steps=(make_step(0), make_step(1))), run_id="r"))
    (_, second) = [e for e in events if e["ph"] == "X"]
    assert (second["name"], second["ts"], second["dur"]) == ("step 1", 10_000.0, 10_000.0)
    assert second["args"] == {"step_time_ms": 10.0, "marks": "steady", "forward_ms": 10.0}


def test_steps_that_were_merged_are_one_slice() -> None:
    merged = make_step(10, num_steps=5, time_s=0.01)
    (piece,) = slices_in(check(chrome_trace(RunSeries(steps=(merged,)), run_id="r")))
    assert piece == ("steps 10 to 14", 0.0, 50_000.0)


def test_slices_that_would_overlap_are_cut() -> None:
    steps = (make_step(0), make_step(1, time_s=0.01, num_steps=2), make_step(2))
    assert slices_in(check(chrome_trace(RunSeries(steps=steps), run_id="r"))) == [
        ("step 0", 0.0, 10_000.0),
        ("steps 1 to 2", 10_000.0, 10_000.0),
        ("step 2", 20_000.0, 10_000.0),
    ]


def test_events_have_tracks_of_their_own_and_those_without_a_length_are_instants() -> None:
    events = check(
        chrome_trace(
            RunSeries(
                events=(
                    Event(what="evaluation", rank=0, t_unix_s=T, seconds=2.0, step=3),
                    Event(what="gc", rank=0, t_unix_s=T + 1, seconds=0.5),
                    Event(what="graph_break", rank=0, t_unix_s=T + 1, text="call to print"),
                    Event(what="of_the_future", rank=0, t_unix_s=T + 3, seconds=1.0),
                )
            ),
            run_id="r",
        )
    )
    assert slices_in(events) == [
        ("evaluation", 0.0, 2e6),
        ("of_the_future", 3e6, 1e6),
        ("gc", 1e6, 5e5),
    ]
    (instant,) = [e for e in events if e["ph"] == "i"]
    assert instant["args"] == {"count": 1, "why": "call to print"}


def test_raw_markers_are_slices_by_thread() -> None:
    pieces = [
        Slice(rank=0, thread=thread, name="forward", t_unix_s=T, seconds=0.002) for thread in (0, 1)
    ]
    events = check(chrome_trace(RunSeries(), pieces, run_id="r"))
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == ["phases", "phases of thread 1"]
    assert slices_in(events) == [("forward", 0.0, 2000.0)] * 2


def test_the_machine_is_counters_that_hold_from_where_their_time_begins() -> None:
    host = (make_host(1.0), make_host(2.0, worker_cores=0.25, received_bytes=3_000_000))
    events = check(chrome_trace(RunSeries(host=host), run_id="r"))
    cores = [(e["ts"], e["args"]) for e in events if e["name"] == "cores"]
    assert cores == [
        (0.0, {"job": 1.0, "others": 0.5}),
        (1e6, {"job": 1.0, "others": 0.5, "workers": 0.25}),
        (2e6, {"job": 1.0, "others": 0.5, "workers": 0.25}),
    ]
    network = [e["args"] for e in events if e["name"].startswith("network")]
    assert network == [{"received": 3.0}] * 2
    assert not [e for e in events if e["name"].startswith("disk")]


def test_devices_are_processes_and_what_held_one_down_is_a_counter() -> None:
    devices = (
        DevicePoint(t_unix_s=T, device="GPU-a", busy_fraction=0.5, throttle=("thermal",)),
        DevicePoint(t_unix_s=T, device="GPU-b", power_w=math.nan),
        DevicePoint(t_unix_s=T + 1, device="GPU-a", used_bytes=1 << 30),
    )
    events = check(chrome_trace(RunSeries(devices=devices), run_id="r"))
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == [
        "device GPU-a",
        "device GPU-b",
    ]
    held = [e["args"] for e in events if e["name"] == "held down"]
    assert held == [{"thermal": 1.0}, {"thermal": 0.0}]
    assert not [e for e in events if e["name"] == "power [W]"]


def test_an_empty_run_is_an_empty_trace() -> None:
    assert check(chrome_trace(RunSeries(), run_id="r")) == []


# -- the command


def make_store(folder: Path, *lines: Line) -> Path:
    runs = folder / ".steptime" / "runs"
    runs.mkdir(parents=True)
    files = {"rank-0.jsonl": [make_head(), *lines]} if lines else {}
    write_run(runs / "20261120-101500-3fa2", files)
    return folder


def export(store: Path, *words: str) -> int:
    return main(["export", "last", "--store", str(store), *words])


def test_a_run_is_written_as_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path, make_update(0), make_update(1))
    assert export(store, "-o", str(tmp_path / "trace.json")) == 0
    events = check(json.loads((tmp_path / "trace.json").read_text()))
    assert [name for name, _, _ in slices_in(events)] == ["step 0", "step 1"]
    said = capsys.readouterr()
    assert (said.out, "perfetto" in said.err) == ("", True)


def test_a_name_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    store = make_store(tmp_path, make_update(0))
    assert export(store, "-o", str(tmp_path / "trace.json.gz")) == 0
    check(json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())))


def test_the_document_says_what_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    assert export(make_store(tmp_path, make_update(0)), "-o", str(path), "--json") == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["path"], data["bytes"]) == (str(path), path.stat().st_size)
    assert (data["format"], data["run_id"]) == ("chrome", "20261120-101500-3fa2")
    assert data["num_events"] == len(json.loads(path.read_text())["traceEvents"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "-o"),
        (("-o", "nowhere/trace.json"), "no folder"),
        (("-o", "."), "is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    assert export(make_store(tmp_path, make_update(0)), *words) == 2
    assert expected in capsys.readouterr().err


def test_a_run_without_anything_to_draw_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(make_store(tmp_path), "-o", str(tmp_path / "trace.json")) == 2
    assert "nothing to draw" in capsys.readouterr().err
    assert not (tmp_path / "trace.json").exists()


def test_a_format_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--to", "csv", "-o", "trace.json"]) == 2
    assert "chrome" in capsys.readouterr().err
