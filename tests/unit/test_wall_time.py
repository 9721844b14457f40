"""The whole time of a run by parts: they sum to it, and only steps that trained are useful."""

from dataclasses import replace

import pytest
from rich.console import Console

from report_cases import healthy
from steptime.app.run.describe_run import describe_run
from steptime.core.codec import to_json
from steptime.measure.fold.code_places import places_of
from steptime.measure.fold.rank_fold import fold_ranks
from steptime.measure.fold.run_fold import measure
from steptime.measure.values.stall import Stall, StalledRank
from steptime.measure.values.wall_time import FIRST_MINUTE, WALL_PARTS, WallPart, WallTime
from steptime.measure.wall.time_of_run import find_wall_time
from steptime.report.blocks.run.wall_blocks import wall_blocks, wall_table
from steptime.report.html.paint_html import paint
from steptime.report.text.paint_text import print_blocks
from steptime.report.text.plain_text import plain_text
from steptime.report.words.run.run_words import describe_wall_part
from unit.builders import (
    BUCKETS,
    MS,
    make_block,
    make_end,
    make_exit,
    make_head,
    make_row,
    make_spans,
    make_update,
    measure_lines,
    read,
)

START = {"k": "start", "pid": 101, "ppid": 1, "python": "3.11.7", "argv": [], "t": 1000.5}
TORCH = {"k": "torch", "pid": 101, "version": "2.13.0", "t": 1002.0}


def updates(num, **fields):
    return [make_update(number, **fields) for number in range(num)]


EXIT = make_exit(100)


def wall_of(*lines, processes=(START, TORCH, EXIT), **command):
    head = make_head(t_unix_s=1005.0)
    files = {"rank-0.jsonl": [head, *lines], "processes.jsonl": processes}
    return measure(read(files, **command)).wall_time


def parts_of(wall):
    return {part.name: pytest.approx(part.total_s) for part in wall.parts}


def test_the_parts_are_the_stretches_of_the_command():
    wall = wall_of(*updates(100), make_end(100))

    assert parts_of(wall) == {
        "interpreter": 0.5,
        "imports": 1.5,
        "setup": 3.0,
        "steps": 1.0,
        "after_steps": 3.0,
        "exit": 51.0,
    }
    assert wall.total_s == pytest.approx(60.0)
    assert wall.goodput_fraction == pytest.approx(1 / 60)
    assert not wall.is_open


def test_spans_and_the_first_batch_are_no_steps():
    first = {"input_wait": 3, "epoch_start": 2, "forward": 5}
    rows = [make_row(0, first)]
    rows += [
        make_row(n, {"evaluation": 6, "forward": 4} if n == 50 else None) for n in range(1, 99)
    ]
    rows += [make_row(99, {"checkpoint": 7, "compile": 1, "forward": 2})]
    wall = wall_of({"k": "u", "rows": rows}, make_end(100))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["first_batch"] == pytest.approx(0.005)
    assert times["evaluation"] == pytest.approx(0.006)
    assert times["checkpoint"] == pytest.approx(0.007)
    assert times["compile"] == pytest.approx(0.001)
    assert "epoch_start" not in times  # it is part of the first batch
    assert sum(times.values()) == pytest.approx(60.0)


def test_what_the_script_does_after_its_last_step_is_told_apart():
    tail = [0] * len(BUCKETS)
    tail[BUCKETS.index("evaluation")] = 400 * MS
    wall = wall_of(*updates(100), make_end(100, tail=tail, t=3000 * MS))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["evaluation"] == pytest.approx(0.4)
    assert times["after_steps"] == pytest.approx(2.6)
    assert sum(times.values()) == pytest.approx(60.0)


def test_warmup_is_what_early_steps_took_beyond_usual_ones():
    slow = [make_row(n, {"forward": 10}) for n in range(100)]
    slow[0][3] -= 490 * MS  # it began earlier, and took half a second
    slow[0][7 + BUCKETS.index("forward")] += 490 * MS
    wall = wall_of({"k": "u", "rows": slow}, make_end(100))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["warmup"] == pytest.approx(0.49)
    assert times["steps"] == pytest.approx(1.0)
    assert times["setup"] == pytest.approx(3.0 - 0.49)


def test_steps_beside_a_busy_neighbor_trained_all_the_same():
    slow = [make_row(n) for n in range(100)]
    for n in range(40):  # they take 20 ms
        slow[n][3] -= (40 - n) * 10 * MS
        slow[n][4] -= (39 - n) * 10 * MS
        slow[n][7 + BUCKETS.index("forward")] += 10 * MS
    lines = [make_head(t_unix_s=1005.0), {"k": "u", "rows": slow}, make_end(100)]
    records = read({"rank-0.jsonl": lines, "processes.jsonl": (START, TORCH, EXIT)})
    folded = fold_ranks(records).busiest
    steady = replace(folded.window.steady, first_step=40, mean_s=0.01)
    folded = replace(folded, window=replace(folded.window, steady=steady))
    series = replace(folded.series, beside_neighbor=frozenset(range(1, 40)))

    def warmup_of(one):
        wall = find_wall_time(one, records, duration_s=60.0, health=None, places=places_of(records))
        assert sum(part.total_s for part in wall.parts) == pytest.approx(60.0)
        return wall.of("warmup")

    assert warmup_of(folded) == pytest.approx(0.4)
    assert warmup_of(replace(folded, series=series)) == pytest.approx(0.01)


def losses(values):
    rows = [[n, 0, 0, value, None] for n, value in enumerate(values, start=1)]
    return {"k": "v", "rows": rows}


def test_updates_that_numbers_wasted_are_not_useful():
    values = [1.0] * 60 + ["nan"] * 40
    wall = wall_of(*updates(100), losses(values), make_end(100))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["wasted_updates"] == pytest.approx(0.4)
    assert times["steps"] == pytest.approx(0.6)
    assert next(p for p in wall.parts if p.name == "wasted_updates").num == 40


def test_updates_that_a_scaler_skipped_are_not_useful():
    rows = [make_row(n, sk=int(n % 10 == 5)) for n in range(100)]
    wall = wall_of({"k": "u", "rows": rows}, make_end(100))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["skipped_updates"] == pytest.approx(0.1)
    assert times["steps"] == pytest.approx(0.9)


def test_a_stall_is_not_useful():
    rows = [make_row(n) for n in range(50)]
    rows += [make_row(n) for n in range(150, 200)]
    rows[50][3] -= 1000 * MS
    rows[50][7 + BUCKETS.index("forward")] += 1000 * MS
    stall = Stall(
        began_unix_s=1005.5,
        seen_unix_s=1006.0,
        usual_step_s=0.01,
        limit_s=0.1,
        ranks=(StalledRank(rank=0, pid=101, num_steps=50),),
    )
    told = {"k": "stall", "n": 0, "stall": to_json(stall)}
    over = {"k": "over", "n": 0, "duration_s": 1.0}
    files = {
        "rank-0.jsonl": [make_head(t_unix_s=1005.0), {"k": "u", "rows": rows}, make_end(100)],
        "processes.jsonl": (START, TORCH, EXIT),
        "stalls.jsonl": [{"k": "head", "schema": 1}, told, over],
    }
    wall = measure(read(files)).wall_time

    times = {part.name: part.total_s for part in wall.parts}
    assert times["stalled"] == pytest.approx(1.0)
    assert times["steps"] == pytest.approx(1.0)


def test_the_line_that_saves_most_is_named():
    spans = make_spans(
        ("checkpoint", "/home/me/project/train.py", 41, 41, 3, 300 * MS),
        ("checkpoint", "/home/me/project/train.py", 99, 99, 1, 2 * MS),
    )
    rows = [
        make_row(n, {"checkpoint": 4, "forward": 6} if n % 25 == 9 else None) for n in range(100)
    ]
    wall = wall_of({"k": "u", "rows": rows}, spans, make_end(100))

    found = next(part for part in wall.parts if part.name == "checkpoint")
    assert (found.where, found.num) == ("train.py:41", 4)


def test_blocks_count_like_steps():
    wall = wall_of(*updates(10), make_block(10, 40, round_ms=10), make_end(50))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["steps"] == pytest.approx(0.5)
    assert sum(times.values()) == pytest.approx(60.0)


def test_what_the_record_does_not_tell_apart_stays_with_the_next_part():
    wall = wall_of(*updates(100), make_end(100), processes=())
    assert parts_of(wall) == {"setup": 5.0, "steps": 1.0, "exit": 54.0}


def test_a_killed_run_has_no_stretch_of_its_own_after_the_last_step():
    killed = {"exit_code": None, "signal": 9}
    wall = wall_of(*updates(100), processes=(START, TORCH), **killed)

    assert parts_of(wall)["exit"] == 54.0
    assert "after_steps" not in parts_of(wall)


def test_a_run_that_goes_on_counts_until_its_last_update():
    open_end = {"ended_unix_s": None, "exit_code": None}
    wall = wall_of(*updates(100), processes=(START, TORCH), **open_end)

    assert wall.is_open
    assert wall.total_s == pytest.approx(6.0)
    assert parts_of(wall)["steps"] == 1.0


def test_what_earlier_starts_took_is_told_apart():
    job = {"ppid": 90, "job": "a", "group": "tcp://a:1", "group_source": "store"}
    again = [make_head(t_unix_s=1005.0, **job, restart=1)]
    first = [make_head(t_unix_s=1002.0, pid=100, **job, restart=0)]
    again += [*updates(100), make_end(100)]
    first += updates(20)
    begun = [
        START | {"pid": 100, "ppid": 90, "t": 1000.4},
        START | {"ppid": 90, "t": 1003.9},
        TORCH | {"pid": 100},
        TORCH | {"t": 1004.5},
    ]
    files = {"rank-0.jsonl": again, "rank-0-100.jsonl": first, "processes.jsonl": begun}
    m = measure(read(files))

    assert m.training.num_restarts == 1
    times = {part.name: part.total_s for part in m.wall_time.parts}
    assert times["interpreter"] == pytest.approx(0.4)
    assert times["earlier_starts"] == pytest.approx(3.5)
    assert times["imports"] == pytest.approx(0.6)
    assert sum(times.values()) == pytest.approx(60.0)


def test_a_run_without_steps_has_no_times():
    assert measure_lines().wall_time is None


# -- in reports


def test_every_part_has_a_word():
    assert all(describe_wall_part(name) != name or "_" not in name for name in WALL_PARTS)
    assert "steps" not in FIRST_MINUTE


def test_the_document_has_the_goodput():
    document = describe_run(healthy(), None)

    assert document.run is not None
    assert document.run.goodput_fraction == pytest.approx(55.8 / 64.2)
    assert document.run.useful_s == pytest.approx(55.8)


def told(wall):
    document = describe_run(replace(healthy(), wall_time=wall), None)

    def render(console: Console) -> None:
        print_blocks(wall_blocks(document), console=console)

    return plain_text(render, width=100)


def test_the_report_names_what_took_the_rest():
    wall = WallTime(
        total_s=100.0,
        parts=(
            WallPart(name="imports", total_s=12.0),
            WallPart(name="steps", total_s=70.0, num=500),
            WallPart(name="checkpoint", total_s=17.5, num=8, where="train.py:41"),
            WallPart(name="exit", total_s=0.5),
        ),
    )
    assert told(wall) == (
        "beside     goodput 70.0 % (1 min 10 s of 1 min 40 s trained) · "
        "checkpoint 17.5 s (8x, train.py:41) ·\n"
        "           imports 12.0 s\n"
    )


def test_the_report_says_that_the_run_goes_on():
    steps = WallPart(name="steps", total_s=70.0, num=500)
    assert "of 1 min 40 s so far" in told(WallTime(total_s=100.0, parts=(steps,), is_open=True))


def test_the_page_has_a_row_for_each_part():
    markup = paint(wall_table(describe_run(healthy(), None)))

    assert markup is not None
    assert markup.text.count("<tr>") == 1 + len(healthy().wall_time.parts)
    assert markup.text.count("step-bar") == len(healthy().wall_time.parts)


# -- the time before the first step


def test_what_the_guest_saw_divides_the_time_before_the_first_step():
    script = "/home/me/project/train.py"
    rows = [
        ["imports", -4400 * MS, -3000 * MS, "torch", script, 1],
        ["imports", -2900 * MS, -2400 * MS, "pandas", script, 9],
        ["data_set", -3000 * MS, -1500 * MS, "", script, 12],
        ["model", -1500 * MS, -1000 * MS, "", script, 20],
        ["loading", -1000 * MS, -800 * MS, "", script, 21],
    ]
    wall = wall_of({"k": "su", "rows": rows}, *updates(100), make_end(100))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["imports"] == pytest.approx(1.9)
    assert times["data_set"] == pytest.approx(1.0)  # without the import inside
    assert times["model"] == pytest.approx(0.5)
    assert times["loading"] == pytest.approx(0.2)
    assert times["setup"] == pytest.approx(4.5 - 3.6)
    assert sum(times.values()) == pytest.approx(60.0)
    assert [p.where for p in wall.parts if p.name in ("imports", "model")] == [
        "train.py:1",
        "train.py:20",
    ]


def test_what_the_first_step_imports_is_no_warmup():
    slow = [make_row(n) for n in range(100)]
    slow[0][3] -= 500 * MS
    slow[0][7 + BUCKETS.index("forward")] += 500 * MS
    late = [["imports", -400 * MS, -100 * MS, "torch._dynamo", None, None]]
    wall = wall_of({"k": "su", "rows": late}, {"k": "u", "rows": slow}, make_end(100))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["imports"] == pytest.approx(0.3)
    assert times["warmup"] == pytest.approx(0.2)
    assert sum(times.values()) == pytest.approx(60.0)


def test_stretches_longer_than_the_time_there_was_are_cut():
    rows = [["model", -90_000 * MS, -10 * MS, "", None, None]]
    wall = wall_of({"k": "su", "rows": rows}, *updates(100), make_end(100))

    assert parts_of(wall)["model"] == 4.5
    assert sum(part.total_s for part in wall.parts) == pytest.approx(60.0)


def test_what_is_loaded_after_a_first_evaluation_is_the_start_too():
    slow = [make_row(n) for n in range(100)]
    slow[0][3] -= 500 * MS  # the evaluation, then other time of the script's own
    slow[0][7] += 300 * MS
    slow[0][7 + BUCKETS.index("evaluation")] += 200 * MS
    late = [["loading", -250 * MS, -50 * MS, "", None, None]]
    wall = wall_of({"k": "su", "rows": late}, {"k": "u", "rows": slow}, make_end(100))

    times = {part.name: part.total_s for part in wall.parts}
    assert times["loading"] == pytest.approx(0.2)
    assert times["evaluation"] == pytest.approx(0.2)
    assert times["warmup"] == pytest.approx(0.1)
    assert sum(times.values()) == pytest.approx(60.0)
