"""Places in the user's code: sites, compile events, switches, suspicions, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.core.codec import from_json, to_json
from steptime.measure.fold.run_fold import measure
from steptime.measure.source.scan import Source
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import (
    Compilation,
    CompileEvent,
    Operators,
    ScriptError,
    Site,
    Suspicion,
    Switch,
)
from unit.builders import (
    MS,
    Line,
    by_count,
    make_block,
    make_end,
    make_error,
    make_exit,
    make_head,
    make_memory,
    make_sites,
    make_source,
    make_spans,
    make_update,
    measure_lines,
    read,
)

TRAIN = "/home/me/project/train.py"


def updates(num: int = 20, *, num_optimizers: int = 1, **fields: Any) -> list[Line]:
    return [make_update(n, **{"o": n % num_optimizers, **fields}) for n in range(num)]


def measure_files(*lines: Line, source: Line | None = None, **files: Any) -> Measurement:
    """The measurement of a rank of twenty updates with these lines, and of other files."""
    if source is not None:
        files["source.json"] = [source]
    return measure(read({"rank-0.jsonl": [make_head(), *updates(), *lines], **files}))


# -- sites


def test_a_site_is_given_a_step_and_its_file_from_the_folder_of_the_command() -> None:
    line = make_sites(("forward", TRAIN, 12, 12, 8, 40 * MS), ("h2d", "/lib/x.py", 3, 3, 4, None))

    (forward, copy) = measure_lines(*updates(), line).sites

    assert (forward.what, forward.file, forward.line, forward.end_line) == (
        "forward",
        "train.py",
        12,
        12,
    )
    assert (forward.calls_per_step, forward.s_per_step) == (2.0, pytest.approx(0.010))
    assert (copy.file, copy.calls_per_step, copy.s_per_step) == ("/lib/x.py", 1.0, None)


def test_where_optimizers_take_turns_a_site_is_given_a_round() -> None:
    line = make_sites(("backward", TRAIN, 12, 12, 4, 4 * MS))

    (site,) = measure_lines(*updates(num_optimizers=2), line).sites

    assert (site.calls_per_step, site.s_per_step) == (2.0, pytest.approx(0.002))


def test_a_site_of_weights_updated_by_hand_is_given_a_step() -> None:
    line = make_sites(("backward", TRAIN, 12, 12, 8, 8 * MS))

    (site,) = measure_lines(*updates(o=-1), line).sites

    assert (site.calls_per_step, site.s_per_step) == (2.0, pytest.approx(0.002))


def test_spans_are_given_over_the_run_and_stand_by_what_they_took_of_it() -> None:
    inside = make_sites(
        ("evaluation", TRAIN, 40, 40, 1, 800 * MS),  # of the updates looked at alone
        ("forward", TRAIN, 12, 12, 4, 40 * MS),  # 0.2 s in 20 steps
        ("backward", TRAIN, 13, 13, 4, 4 * MS),
    )
    spans = make_spans(("evaluation", TRAIN, 40, 40, 5, 100 * MS))

    found = measure_lines(*updates(), inside, make_spans(), spans).sites

    assert [site.what for site in found] == ["forward", "evaluation", "backward"]
    assert (found[1].calls_per_step, found[1].s_per_step) == (5.0, pytest.approx(0.1))


def test_a_rollout_is_given_a_step_from_the_whole_run_whatever_early_steps_had() -> None:
    inside = make_sites(("forward", TRAIN, 12, 12, 4, 40 * MS))
    spans = make_spans(("rollout", TRAIN, 30, 30, 40, 100 * MS))

    found = measure_lines(*updates(), inside, spans).sites
    assert [site.what for site in found] == ["forward", "rollout"]
    assert (found[1].calls_per_step, found[1].s_per_step) == (2.0, pytest.approx(0.005))

    walked = make_sites(("rollout", TRAIN, 30, 30, 8, 40 * MS))
    (site,) = measure_lines(*updates(), walked, spans).sites
    assert (site.calls_per_step, site.s_per_step) == (2.0, pytest.approx(0.005))


def test_the_last_line_of_sites_counts_and_equal_places_are_one() -> None:
    first = make_sites(("sync", TRAIN, 9, 9, 4, None))
    second = make_sites(
        ("sync", TRAIN, 31, 31, 4, None),
        ("sync", TRAIN, 31, 31, 8, None),
        ("other", TRAIN, 20, 22, 4, MS),
        ("other", TRAIN, 20, 22, 4, MS),
        ("h2d", TRAIN, 7, 7, 4, MS),
        ("h2d", TRAIN, 7, 7, 4, None),
    )

    found = measure_lines(*updates(), first, second).sites

    assert [(site.what, site.calls_per_step, site.s_per_step) for site in found] == [
        ("other", 2.0, pytest.approx(0.0005)),
        ("sync", 3.0, None),
        ("h2d", 2.0, None),
    ]


def test_of_many_sites_the_longest_stay_and_counted_ones_with_them() -> None:
    timed = [("forward", TRAIN, n, n, 4, n * MS) for n in range(1, 50)]
    counted = [("sync", TRAIN, n, n, n, None) for n in range(1, 50)]

    found = measure_lines(*updates(), make_sites(*timed, *counted)).sites

    assert [site.line for site in found[:20]] == list(range(49, 29, -1))
    assert [site.line for site in found[20:]] == list(range(49, 39, -1))


def test_a_line_has_its_text_where_the_source_could_be_read() -> None:
    line = make_sites(("sync", TRAIN, 31, 31, 8, None), ("sync", TRAIN, 9, 9, 4, None))
    source = make_source(lines=[[TRAIN, 31, "print(loss.item())"]])

    found = measure_files(line, source=source).sites

    assert [site.text for site in found] == ["print(loss.item())", None]


def test_without_a_folder_files_keep_their_names() -> None:
    files = {"rank-0.jsonl": [make_head(), *updates(), make_sites(("sync", TRAIN, 1, 1, 1, None))]}

    (site,) = measure(read(files, cwd=None)).sites

    assert site.file == TRAIN


places = st.tuples(
    st.sampled_from(["forward", "other", "sync"]),
    st.sampled_from([TRAIN, "/home/me/project/sub/model.py", "/else/where.py"]),
    st.integers(1, 3),
    st.integers(3, 4),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(0, 9)),
)


@given(sites=st.lists(places, max_size=25), data=st.data())
@settings(max_examples=25)
def test_the_order_of_sites_in_a_line_does_not_matter_and_no_time_is_lost(
    sites: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    timed = [site for site in sites if site[5] is not None]
    mixed = data.draw(st.permutations(timed))

    found = measure_lines(*updates(), make_sites(*timed, num_updates=1)).sites

    assert found == measure_lines(*updates(), make_sites(*mixed, num_updates=1)).sites
    assert sum(site.s_per_step or 0 for site in found) == pytest.approx(
        sum(site[5] for site in timed) * 1e-9
    )
    assert len({(site.what, site.file, site.line, site.end_line) for site in found}) == len(found)


def test_sites_are_those_of_the_busiest_rank() -> None:
    def rank(number: int, num: int) -> list[Line]:
        line = make_sites(("forward", TRAIN, number, number, 4, MS))
        return [make_head(rank=number, pid=number, world_size=2), *updates(num), line]

    found = measure(read({"rank-0.jsonl": rank(1, 5), "rank-1.jsonl": rank(2, 9)}))

    assert [site.line for site in found.sites] == [2]


# -- operators and compiling


def test_operators_are_counted_or_missing_with_a_reason() -> None:
    counted = {"k": "ops", "n": 12, "num": 800, "num_tiny": 790, "tiny_ns": 4 * MS, "large_ns": MS}
    missing = {"k": "ops", "n": 12, "missing": "compiled"}

    assert measure_lines(*updates()).operators is None
    assert measure_lines(*updates(), missing).operators == Operators(missing="compiled")
    assert measure_lines(*updates(), missing, counted, missing).operators == Operators(
        num=800, num_tiny=790, tiny_s=pytest.approx(0.004), large_s=pytest.approx(0.001)
    )


def test_compiling_has_its_events_and_the_time_of_its_span() -> None:
    events: Line = {
        "k": "c",
        "n": 30,
        "graphs": 4,
        "breaks": [["call to print", TRAIN, 12, 3]],
        "recompiles": [["size mismatch", None, None, 6]],
    }
    lines = updates()
    lines[5] = make_update(5, {"forward": 8, "compile": 500})

    found = measure_lines(*lines, {**events, "graphs": 1, "breaks": []}, events).compilation

    assert found == Compilation(
        num_graphs=4,
        num_steps_touched=1,
        total_s=pytest.approx(0.5),
        breaks=(CompileEvent(reason="call to print", count=3, where="train.py:12"),),
        recompiles=(CompileEvent(reason="size mismatch", count=6),),
    )
    assert measure_lines(*lines).compilation is None
    untimed = measure_lines(*updates(), events).compilation
    assert untimed is not None
    assert (untimed.num_steps_touched, untimed.total_s) == (0, 0.0)


# -- switches and suspicions


def test_switches_of_all_ranks_count_with_the_first_place_that_turns_them_on() -> None:
    files = {
        "rank-0.jsonl": [make_head(), *updates(), {"k": "q", "n": 1, "on": ["deterministic"]}],
        "rank-1.jsonl": [
            make_head(rank=1),
            {"k": "q", "n": 1, "on": ["anomaly_mode"]},
            {"k": "q", "n": 2, "on": []},
        ],
        "source.json": [
            make_source(switches=[["anomaly_mode", TRAIN, 12], ["anomaly_mode", TRAIN, 99]])
        ],
    }

    assert measure(read(files)).switches == (
        Switch(name="anomaly_mode", where="train.py:12"),
        Switch(name="deterministic", where=None),
    )


def test_a_switch_that_the_source_turns_on_and_the_run_did_not_see_is_none() -> None:
    assert measure_files(source=make_source(switches=[["profiler", TRAIN, 12]])).switches == ()


SUSPECT = make_source(suspicions=[["accumulation_loss", TRAIN, 44, "loss.backward()"]])


def suspicions_of(*lines: Line) -> tuple[Suspicion, ...]:
    return measure(read({"rank-0.jsonl": [make_head(), *lines], "source.json": [SUSPECT]})
                   ).suspicions  # fmt: skip


def test_the_source_is_suspected_where_the_run_accumulated() -> None:
    accumulating = updates(x=by_count(backwards=4))

    assert suspicions_of(*accumulating) == (
        Suspicion(code="accumulation_loss", where="train.py:44", text="loss.backward()"),
    )


def test_without_accumulation_by_one_optimizer_nothing_is_suspected() -> None:
    plain = updates(x=by_count(backwards=1))
    plain[4] = make_update(4, x=by_count(backwards=3))  # two batches were given up

    assert suspicions_of(*plain) == ()
    assert suspicions_of(*updates(num_optimizers=2, x=by_count(backwards=2))) == ()
    assert suspicions_of(make_block(0, 50)) == ()
    assert suspicions_of() == ()


# -- errors


def errors_of(*exits: Line) -> tuple[ScriptError, ...]:
    return measure(read({"processes.jsonl": list(exits)}, exit_code=1)).errors


def test_an_error_says_where_and_how_far_the_run_came() -> None:
    full = make_error("out of memory", type="OutOfMemoryError", phase="backward", is_memory=True,
                      requested_bytes=1 << 30)  # fmt: skip

    assert errors_of(make_exit(7, error=full)) == (
        ScriptError(
            type="OutOfMemoryError",
            text="out of memory",
            num_updates=7,
            is_memory=True,
            where="train.py:31",
            phase="backward",
            requested_bytes=1 << 30,
        ),
    )


def test_what_is_not_known_of_an_error_is_absent() -> None:
    bare = dict.fromkeys(("file", "line", "phase", "is_memory", "requested_bytes"))

    assert errors_of(make_exit(error=make_error(**bare))) == (
        ScriptError(type="RuntimeError", text="boom", num_updates=0),
    )
    assert errors_of(make_exit(error=make_error(line=None)))[0].where == "train.py"


def test_the_same_error_of_several_ranks_counts_once_the_furthest_first() -> None:
    exits = [
        make_exit(0, error=make_error("a child failed", type="ChildFailedError", file=None)),
        make_exit(3, error=make_error("boom of rank 1")),
        make_exit(9, error=make_error("boom of rank 0")),
        make_exit(5, error=make_error("boom of rank 0", line=99)),
        make_exit(5),
    ]

    found = errors_of(*exits)

    assert [(error.text, error.num_updates) for error in found] == [
        ("boom of rank 0", 9),
        ("boom of rank 0", 5),
        ("a child failed", 0),
    ]
    assert found == errors_of(*reversed(exits))


def test_different_errors_without_a_place_stay_apart() -> None:
    exits = [make_exit(0, error=make_error(text, file=None)) for text in ("one", "two", "one")]

    assert [error.text for error in errors_of(*exits)] == ["one", "two"]


def test_a_run_without_a_step_has_errors_switches_and_memory() -> None:
    samples = [make_memory(n, 1000 + n) for n in range(20)]
    files = {
        "rank-0.jsonl": [make_head(), *samples, {"k": "q", "n": 0, "on": ["profiler"]}],
        "rank-1.jsonl": [make_head(rank=1)],
        "processes.jsonl": [make_exit(error=make_error())],
    }

    found = measure(read(files, exit_code=1))

    assert (found.num_steps, found.num_ranks) == (0, 0)
    assert [error.where for error in found.errors] == ["train.py:31"]
    assert found.switches == (Switch(name="profiler"),)
    (rank,) = found.ranks
    assert (rank.num_steps, rank.step_time_s, rank.gc) == (0, None, None)
    assert rank.host_memory is not None
    assert (rank.host_memory.first_bytes, rank.host_memory.last_bytes) == (1000, 1019)


# -- source.json


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        "[]",
        '{"schema": 1}',
        '{"schema": 2, "lines": [["train.py", 1, "x"]]}',
        json.dumps(make_source(lines=[["train.py", 1], ["train.py", "1", "x"], 3])),
        json.dumps(make_source(suspicions=[["code", None, 1, "x"]], switches=3)),
    ],
)
def test_a_source_that_cannot_be_read_is_left_out(text: str) -> None:
    assert read({"source.json": [text]}).source == Source()


# -- all of it


def full_run() -> dict[str, Any]:
    """A run folder with every line there is."""
    counts = by_count(backwards=2, batches=1, gc_pauses=1, gc_ns=MS, prepare_ns=MS)
    compiled = {"k": "c", "n": 9, "graphs": 1, "breaks": [["why", TRAIN, 3, 1]],
                "recompiles": [["why not", None, None, 2]]}  # fmt: skip
    lines = [
        *updates(60, x=counts),
        *[make_memory(20 + n * 20, 10**9 + n, minflt=n, majflt=n, stime_ns=n, allocated=n, peak=n)
          for n in range(25)],
        make_sites(("forward", TRAIN, 3, 3, 4, MS), ("sync", TRAIN, 4, 4, 4, None)),
        make_spans(("checkpoint", TRAIN, 5, 5, 1, MS)),
        {"k": "ops", "n": 12, "num": 8, "num_tiny": 7, "tiny_ns": 5, "large_ns": 6},
        compiled,
        {"k": "q", "n": 1, "on": ["anomaly_mode"]},
        make_end(60),
    ]  # fmt: skip
    source = {
        **SUSPECT,
        "lines": [[TRAIN, 3, "model(x)"]],
        "switches": [["anomaly_mode", TRAIN, 1]],
    }
    return {
        "rank-0.jsonl": [make_head(device="cuda"), *lines],
        "processes.jsonl": [make_exit(60, error=make_error())],
        "source.json": [source],
    }


def test_everything_read_survives_a_round_trip_and_is_the_same_each_time() -> None:
    found = measure(read(full_run()))

    (rank,) = found.ranks
    assert None not in (rank.host_memory, rank.device_memory, rank.gc, found.prepare_fraction)
    assert all((found.sites, found.operators, found.compilation, found.switches))
    assert all((found.suspicions, found.errors))
    assert from_json(Measurement, json.loads(json.dumps(to_json(found)))) == found
    assert measure(read(full_run())) == found


def test_a_site_knows_nothing_of_a_text_that_moved() -> None:
    source = make_source(lines=[[TRAIN, 32, "x"]])
    found = measure_files(make_sites(("sync", TRAIN, 31, 31, 4, None)), source=source)

    assert found.sites == (
        Site(what="sync", file="train.py", line=31, end_line=31, calls_per_step=1.0),
    )
