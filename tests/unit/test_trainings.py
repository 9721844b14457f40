"""Several trainings of one command: which processes belong together, and what is told of each."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import steptime
from documents import check_document
from steptime.app.run.observed_run import ObservedRun
from steptime.app.run.run_end import RunEnd
from steptime.app.stored.compare import read_run
from steptime.app.stored.export import write_trace
from steptime.app.stored.load import fold, load_measurement, load_run, save
from steptime.app.stored.report import write_page
from steptime.app.stored.run_listing import run_at, summarize
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run
from steptime.errors import NotFoundError, RecipeError, UsageError
from steptime.guest.trial.plan_scope import is_meant
from steptime.measure.fold.run_records import RecordReader, read_records
from steptime.measure.values.stall import Stall, StalledRank
from steptime.measure.wall.group_kin import Kin, group_kin
from steptime.measure.wall.stall_file import StallFile, read_stalls
from steptime.record.lines import Torn
from steptime.record.live.begun import Begun, number_alike
from steptime.report.blocks.run.stall_blocks import describe_ranks
from steptime.report.blocks.run.training_blocks import training_blocks
from steptime.report.document.run_document import run_envelope
from steptime.report.html.paint_html import paint
from steptime.report.text.live_text import Pace, live_line
from steptime.report.text.print_run import MOST_LINES, render
from steptime.tune.recipe.recipe_file import parse_recipe, render_recipe
from steptime.tune.trials.observe_baseline import SeveralTrainingsError, find_scope
from steptime.tune.trials.process_pairs import number_of
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.values.study_values import TrainingScope
from steptime.watch.stalls.rank_stacks import ProbedRanks, probe_ranks
from steptime.watch.stalls.stall_watch import StallWatch, WatchReaders
from unit.builders import Line, make_end, make_head, make_update, write_run
from unit.test_watch import HERE, make_probe

FINISHED = RunEnd(end=ProcessEnd(state=RunState.FINISHED, exit_code=0))


def kin(pid: int, *, rank: int = 0, since: float = 0.0, until: float = 9.0, **more: Any) -> Kin:
    known: dict[str, Any] = {"ppid": 1, "num_updates": 10} | more
    return Kin(pid=pid, rank=rank, t_unix_s=since, ended_unix_s=until, **known)


def grouped(*kins: Kin) -> list[list[int]]:
    """The process ids of each training, all starts together."""
    return [[kins[place].pid for place in group.all] for group in group_kin(kins)]


def rank(pid: int, number: int, **more: Any) -> Kin:
    """A rank whose process group has its store at one place."""
    known = {"group": "tcp://localhost:29500", "group_source": "store"} | more
    return kin(pid, rank=number, **known)


# -- which processes belong together


def test_processes_that_share_nothing_are_trainings_of_their_own_in_the_order_of_start() -> None:
    assert grouped(kin(11, since=3.0), kin(10, since=1.0), kin(12, since=2.0)) == [[10], [12], [11]]


def test_the_ranks_of_a_group_are_one_training() -> None:
    assert grouped(rank(10, 0), rank(11, 1, since=1.0), kin(12, since=0.5)) == [[10, 11], [12]]


def test_two_groups_at_the_same_place_one_after_the_other_are_two_trainings() -> None:
    first = [rank(10, 0, ppid=5), rank(11, 1, ppid=5)]
    second = [
        rank(20, 0, ppid=6, since=12.0, until=20.0),
        rank(21, 1, ppid=6, since=12.0, until=19),
    ]
    assert grouped(*second, *first) == [[10, 11], [20, 21]]


def test_two_groups_that_one_parent_spawns_are_two_trainings() -> None:
    first = [rank(10, 0), rank(11, 1)]
    second = [rank(20, 0, since=12.0, until=20.0), rank(21, 1, since=12.0, until=20.0)]
    assert grouped(*first, *second) == [[10, 11], [20, 21]]


def test_the_launchers_of_two_nodes_make_one_training() -> None:
    assert grouped(
        *(rank(10, 0, ppid=5), rank(11, 1, ppid=5)),
        *(rank(20, 2, ppid=6, since=2.0), rank(21, 3, ppid=6, since=2.0)),
    ) == [[10, 11, 20, 21]]


def test_equal_ranks_at_the_same_place_and_time_are_two_trainings() -> None:
    """A job script whose variables say RANK=0 to everything that it starts."""
    assert grouped(rank(10, 0), rank(11, 0, since=1.0)) == [[10], [11]]


def test_a_job_that_torchrun_restarted_is_one_training_and_its_longest_start_is_shown() -> None:
    first = [rank(10, 0, restart=0, ppid=5, until=4.0), rank(11, 1, restart=0, ppid=5, until=4.0)]
    again = {"restart": 1, "ppid": 5, "since": 5.0, "num_updates": 50}
    second = [rank(20, 0, **again), rank(21, 1, **again)]
    (group,) = group_kin([*first, *second])
    assert group.starts == ((0, 1), (2, 3))
    assert group.shown == (2, 3)
    (group,) = group_kin([replace(one, num_updates=99) for one in first] + second)
    assert group.shown == (0, 1)


def test_a_restart_is_known_by_its_job_where_a_shell_stands_between() -> None:
    job = {"job": "abc", "group": "elastic:abc", "group_source": "launcher"}
    first = rank(10, 0, restart=0, ppid=5, until=4.0, **job)
    assert grouped(first, rank(20, 0, restart=1, ppid=6, since=5.0, **job)) == [[10, 20]]
    assert grouped(first, rank(20, 0, restart=0, ppid=6, since=5.0, **job)) == [[10], [20]]


def test_processes_on_the_same_weights_are_one_training_even_one_after_the_other() -> None:
    shared = {"group": "memory:00:01:7", "group_source": "memory"}
    assert grouped(kin(10, rank=0, until=2.0, **shared), kin(11, rank=1, since=3.0, **shared)) == [
        [10, 11]
    ]


def test_a_record_of_an_older_guest_is_one_training() -> None:
    assert grouped(kin(10, ppid=None), kin(11, rank=1, since=20.0, ppid=None)) == [[10, 11]]


# -- the fold


def stream(pid: int, num: int, *, since: float, rank: int = 0, **head: Any) -> list[Line]:
    """A process that steps `num` times, 10 ms each."""
    known: dict[str, Any] = {"rank_source": "order", "ppid": 1, "group": None}
    known |= {"argv": [f"train_{pid}.py"]} | head
    updates = map(make_update, range(num))
    return [make_head(pid=pid, rank=rank, t_unix_s=since, **known), *updates, make_end(num)]


def begin(pid: int, *words: str, t: float) -> Line:
    return {"k": "start", "pid": pid, "ppid": 1, "python": "3.11.7", "argv": list(words), "t": t}


def write_two(folder: Path, **files: Sequence[Line | str]) -> Path:
    """A run of two trainings one after the other, the second of which lasts longer."""
    starts = [begin(10, "python", "a.py", "--lr", "1", t=999.0)]
    starts += [begin(20, "python", "b.py", t=1009.0)]
    return write_run(
        folder / "20260101-000000-abcd",
        {
            "processes.jsonl": starts,
            "rank-0.jsonl": stream(10, 30, since=1000.0),
            "rank-1.jsonl": stream(20, 40, since=1010.0, rank=1),
            **{name.replace("_", "-") + ".jsonl": lines for name, lines in files.items()},
        },
        run_id="20260101-000000-abcd",
        argv=["bash", "train.sh"],
    )


def test_each_training_is_read_by_itself(tmp_path: Path) -> None:
    reader = RecordReader(write_two(tmp_path))

    first, second = reader.trainings
    assert [one.number for one in reader.trainings] == [1, 2]
    assert (first.command, first.pid) == (("python", "a.py", "--lr", "1"), 10)
    assert (first.started_unix_s, second.started_unix_s) == (999.0, 1009.0)
    assert second.last_update_unix_s == pytest.approx(1010.4)
    assert (first.beside, second.beside) == ((), ())
    assert reader.longest == second
    assert [stream.head.pid for stream in reader.read(1).streams] == [10]
    assert [stream.head.pid for stream in reader.read().streams] == [20]
    assert reader.read(2).streams[0].head.rank == 0  # alone, it is no rank 1


def test_a_number_that_no_training_has_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has 2 trainings, and none has the number 3") as raised:
        read_records(write_two(tmp_path), 3)
    assert raised.value.hint == "Name one from 1 to 2."


def test_what_is_beside_the_steps_goes_to_its_own_training(tmp_path: Path) -> None:
    host = [{"k": "head", "schema": 1, "num_cores": 4}]
    host += [
        {"k": "h", "t_unix_s": t, "dt_s": 0.1, "busy_cores": 1.0, "job_cores": cores}
        for t, cores in ((1000.2, 0.5), (1010.3, 0.9))
    ]
    worker = {"k": "head", "schema": 1, "pid": 140, "ppid": 20, "worker": 0}
    sums = {"k": "w", "pid": 140, "batches": 1, "fetch_ns": 5, "collate_ns": 6, "cpu_ns": 7}
    folder = write_two(tmp_path, host=host, worker_20_0=[worker, sums])
    first, second = RecordReader(folder).read(1), RecordReader(folder).read(2)
    assert [sample.job_cores for sample in second.host.samples] == [0.9]
    assert [len(first.workers), len(second.workers)] == [0, 1]
    assert not first.has_other_workers  # nobody else was there


def test_trainings_at_the_same_time_say_so(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        {
            "rank-0.jsonl": stream(10, 30, since=1000.0),
            "rank-1.jsonl": stream(20, 40, since=1000.1, rank=1),
        },
    )
    observed = fold(run_at(folder), FINISHED)
    notes = {note.code: note.facts for note in observed.measurement.notes}
    assert notes["trainings_beside"] == {"count": 1, "numbers": (1,)}
    assert observed.measurement.num_ranks == 1


def test_a_start_that_is_not_shown_is_said(tmp_path: Path) -> None:
    group = {"rank_source": "distributed", "group": "tcp://h:1", "restart": 0, "world_size": 2}
    later = group | {"restart": 1}
    folder = write_run(
        tmp_path / "run",
        {
            "rank-0.jsonl": stream(10, 4, since=1000.0, **group),
            "rank-1.jsonl": stream(11, 4, since=1000.0, rank=1, **group),
            "rank-0-20.jsonl": stream(20, 40, since=1005.0, **later),
            "rank-1-21.jsonl": stream(21, 40, since=1005.0, rank=1, **later),
        },
    )
    observed = fold(run_at(folder), FINISHED)
    m = observed.measurement
    assert (m.num_ranks, m.num_steps) == (2, 40)
    assert [one.pid for one in m.ranks] == [20, 21]
    assert m.training is not None
    assert (m.training.num_trainings, m.training.num_restarts) == (1, 1)
    notes = {note.code: note.facts for note in m.notes}
    assert notes["several_processes_stepped"] == {"ranks": "0, 1"}


def test_a_stall_belongs_to_the_training_that_stood_still(tmp_path: Path) -> None:
    stall = Stall(
        began_unix_s=1010.3,
        seen_unix_s=1010.4,
        usual_step_s=0.02,
        limit_s=10.0,
        ranks=(StalledRank(rank=1, pid=20, num_steps=15),),
    )
    folder = write_two(tmp_path)
    StallFile(folder).add(stall)
    assert read_records(folder, 1).stalls == ()
    (found,) = read_records(folder, 2).stalls
    assert found.ranks[0].rank == 0


# -- loading, saving and documents


def observed_two(tmp_path: Path) -> ObservedRun:
    observed = fold(run_at(write_two(tmp_path)), FINISHED)
    save(observed)
    return observed


def test_the_longest_is_shown_and_all_are_kept(tmp_path: Path) -> None:
    run = observed_two(tmp_path).run
    loaded = load_run(run)
    assert repr(loaded).startswith(f"<ObservedRun {run.run_id}, training 2 of 2: 40 steps")
    assert [one.measurement.num_steps for one in loaded.trainings] == [30, 40]
    assert loaded.trainings[1] is loaded
    first = load_run(run, training=1)
    assert first.measurement == loaded.trainings[0].measurement
    assert first.picture == loaded.trainings[0].picture
    assert steptime.load(str(run.folder), training=1).measurement.num_steps == 30
    assert load_measurement(run).num_steps == 40
    assert load_measurement(run, training=1).num_steps == 30
    assert summarize(run).num_trainings == 2


def test_a_saved_training_that_is_missing_is_folded_again(tmp_path: Path) -> None:
    run = observed_two(tmp_path).run
    (run.folder / "measurement-1.json").unlink()
    assert load_run(run, training=1).measurement.num_steps == 30
    assert load_measurement(run, training=1).num_steps == 30


@pytest.mark.parametrize("is_saved", [True, False])
@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_wrong_number_is_refused(tmp_path: Path, number: int, *, is_saved: bool) -> None:
    run = observed_two(tmp_path).run
    if not is_saved:
        (run.folder / "measurement.json").unlink()
    for read in (load_run, load_measurement):
        with pytest.raises(NotFoundError, match="has 2 trainings"):
            read(run, training=number)


def test_a_command_with_one_training_has_the_number_one(tmp_path: Path) -> None:
    files = {"rank-0.jsonl": stream(10, 30, since=1000.0)}
    run = run_at(write_run(tmp_path / "run", files))
    save(fold(run, FINISHED))
    observed = load_run(run, training=1)
    assert observed.trainings == (observed,)
    assert observed.document.trainings == ()
    with pytest.raises(NotFoundError, match="has one training") as raised:
        load_run(run, training=2)
    assert raised.value.hint == "Leave --training out."


def test_a_run_without_steps_has_no_training(tmp_path: Path) -> None:
    run = run_at(write_run(tmp_path / "run", {}))
    save(fold(run, FINISHED))
    assert load_run(run).trainings == ()
    with pytest.raises(NotFoundError, match="no step was seen"):
        load_run(run, training=1)


def test_the_document_lists_every_training(tmp_path: Path) -> None:
    observed = observed_two(tmp_path)
    envelope = run_envelope(observed.document, command="run", exit_code=0)
    data = check_document(envelope, "run")["data"]
    assert [one["number"] for one in data["trainings"]] == [1, 2]
    assert [one["measurement"]["training"]["pid"] for one in data["trainings"]] == [10, 20]
    assert data["measurement"] == data["trainings"][1]["measurement"]


# -- the report


def text_of(
    observed: ObservedRun, width: int = 100, *, is_terminal: bool | None = None
) -> list[str]:
    out = io.StringIO()
    size = {"width": width, "height": 60}
    console = Console(file=out, **size, force_terminal=is_terminal, color_system=None)
    render(observed.document, console=console)
    return out.getvalue().splitlines()


def test_the_report_has_one_line_a_training(tmp_path: Path) -> None:
    lines = text_of(observed_two(tmp_path))
    first = next(i for i, line in enumerate(lines) if line.startswith("trainings"))
    told = [line.split() for line in lines[first : first + 3]]
    assert told[0] == ["trainings", "training", "diagnosis", "steps", "step", "time"]
    assert (told[1][:4], told[1][-3:]) == (["1", "a.py", "--lr", "1"], ["30", "10.0", "ms"])
    assert (told[2][:2], told[2][-3:]) == (["2", "b.py"], ["40", "10.0", "ms"])
    assert lines[first + 3] == "shown      training 2, which lasted longest. Another:"
    assert lines[first + 4].strip() == "steptime show 20260101-000000-abcd --training 1"
    assert "shown      training 1. " in "\n".join(text_of(observed_two(tmp_path).trainings[0]))


def test_many_trainings_fit_a_screen_with_the_one_that_is_shown(tmp_path: Path) -> None:
    files = {
        f"rank-{n}.jsonl": stream(10 + n, 20 + n, since=1000.0 + 10 * n, rank=n) for n in range(40)
    }
    observed = fold(run_at(write_run(tmp_path / "run", files)), FINISHED)
    assert sum(".py" in line for line in text_of(observed)) > 40
    lines = text_of(observed, is_terminal=True)
    assert len(lines) <= MOST_LINES
    assert any("train_49.py" in line for line in lines)
    assert any("more trainings in the document of --json: 3" in line for line in lines)


def test_the_list_of_runs_counts_them(tmp_path: Path) -> None:
    from steptime.report.blocks.run.run_list import run_list
    from steptime.report.text.paint_text import print_blocks

    run = observed_two(tmp_path).run
    out = io.StringIO()
    print_blocks(run_list([summarize(run)]), console=Console(file=out, width=120))
    assert "40 (1 of 2)" in out.getvalue()
    document = json.loads((run.folder / "measurement.json").read_text())
    assert document["training"]["num_trainings"] == 2


def test_a_run_of_an_older_steptime_loads(tmp_path: Path) -> None:
    run: Run = observed_two(tmp_path).run
    path = run.folder / "measurement.json"
    document = json.loads(path.read_text())
    del document["training"]
    path.write_text(json.dumps(document))
    assert load_run(run).measurement.num_steps == 40


def test_the_page_lists_them_and_is_about_one(tmp_path: Path) -> None:
    observed = observed_two(tmp_path)
    page = paint(training_blocks(observed.document)).text
    assert "Training 2, which lasted longest" in page
    assert "<b>b.py</b>" in page
    assert "<td>a.py --lr 1</td>" in page
    assert training_blocks(replace(observed, parts=()).document) == []


def test_each_has_a_page_and_a_trace_of_its_own(tmp_path: Path) -> None:
    observed = observed_two(tmp_path)
    first, second = observed.trainings
    assert write_page(second).name == "report.html"
    assert write_page(first).name == "report-1.html"
    trace = tmp_path / "trace.json"
    write_trace(observed.run, trace, training=1)
    events = json.loads(trace.read_text())["traceEvents"]
    steps = [event for event in events if event.get("name", "").startswith("step ")]
    assert len(steps) == 30


# -- while the command runs


def test_each_training_stalls_by_itself(tmp_path: Path) -> None:
    """Of two trainings beside each other one goes on, and the other stands still."""
    now = [0.0]
    folder = tmp_path / "run"
    write_run(
        folder, {f"rank-{n}.jsonl": stream(10 + n, 20, since=1000.0, rank=n)[:-1] for n in (0, 1)}
    )
    readers = WatchReaders(
        clock_s=lambda: now[0],
        cost_s=lambda: 0.0,
        unix_s=lambda: 1000.0 + now[0],
        probe=lambda pid: make_probe(pid, HERE),
        children=lambda _: (),
    )
    watch = StallWatch(folder, cwd=None, readers=readers)
    for second in range(400):
        now[0] = float(second)
        with (folder / "rank-0.jsonl").open("a") as file:
            file.write(json.dumps(make_update(20 + second)) + "\n")
        watch.take()
    (stall,) = read_stalls(folder, Torn())
    assert [one.pid for one in stall.ranks] == [11]
    assert [[one.pid for one in ranks] for ranks in watch.newest()] == [[10], [11]]


def test_the_live_line_is_about_the_training_that_began_last() -> None:
    pace = Pace(elapsed_s=12.0, num_updates=40, training=3, num_beside=2)
    assert live_line(pace, width=80) == "steptime 12.0 s · training 3 (2 beside it) · 40 updates"
    assert "training" not in live_line(Pace(elapsed_s=12.0, num_updates=40), width=80)


def test_stacks_say_which_training_they_are_of(tmp_path: Path) -> None:
    folder = write_two(tmp_path)
    for path in folder.glob("rank-*.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))

    def probe_all(**more: Any) -> ProbedRanks:
        return probe_ranks(
            folder,
            probe=lambda pid: make_probe(pid, HERE),
            sleep=lambda _: None,
            is_ours=lambda *_: True,
            **more,
        )

    found = probe_all()
    assert [(one.training, one.rank, one.pid) for one in found.ranks] == [(1, 0, 10), (2, 0, 20)]
    assert found.culprits == ()
    assert describe_ranks(found.ranks)[1].startswith("training 2, rank 0 ")
    assert [one.pid for one in probe_all(training=1).ranks] == [10]
    assert probe_all(training=7) == ProbedRanks()


# -- compared


def test_a_run_of_several_is_compared_by_the_one_that_is_named(tmp_path: Path) -> None:
    run = observed_two(tmp_path).run
    with pytest.raises(UsageError, match=r"has 2 trainings: 1 \(a.py --lr 1\), 2 \(b.py\)"):
        read_run(run)
    found = read_run(run, training=1)
    assert (found.num_steps, found.training) == (30, 1)
    both = load_run(run).trainings
    compared = steptime.compare(both[0], both[1]).comparison
    assert [one.num_steps for one in (*compared.a, *compared.b)] == [30, 40]
    assert "named_twice" not in {obstacle.code for obstacle in compared.obstacles}


def test_a_number_says_nothing_about_a_run_with_one_training(tmp_path: Path) -> None:
    files = {"rank-0.jsonl": stream(10, 40, since=1000.0)}
    run = run_at(write_run(tmp_path / "run", files))
    found = read_run(run, training=2)
    assert (found.num_steps, found.training) == (40, None)


# -- tuned


def test_a_process_is_recognized_by_its_words_and_their_number() -> None:
    spawned = ("python", "-c", "spawn_main(5)", "--multiprocessing-fork")
    found = number_alike(
        [
            Begun(1, 0, ("python", "a.py")),
            Begun(2, 0, ("python", "b.py")),
            Begun(3, 0, ("python", "a.py")),
            Begun(4, 2, spawned),
            Begun(5, 2, (*spawned[:2], "spawn_main(7)", spawned[3])),
        ]
    )
    assert [found[pid] for pid in (1, 2, 3)] == [
        (("python", "a.py"), 0),
        (("python", "b.py"), 0),
        (("python", "a.py"), 1),
    ]
    of_b = ("--multiprocessing-fork", "python", "b.py")
    assert (found[4], found[5]) == ((of_b, 0), (of_b, 1))


@pytest.mark.parametrize(
    ("scope", "is_so"),
    [
        (None, True),
        ({"words": ["python", "a.py"], "numbers": [1]}, True),
        ({"words": ["python", "a.py"], "numbers": [0]}, False),
        ({"words": ["python", "b.py"], "numbers": [1]}, False),
    ],
)
def test_a_plan_reaches_the_processes_that_it_names(
    tmp_path: Path, scope: dict[str, Any] | None, *, is_so: bool
) -> None:
    starts = [begin(7, "python", "a.py", t=1.0), begin(os.getpid(), "python", "a.py", t=2.0)]
    lines = [json.dumps(line) for line in starts]
    (tmp_path / "processes.jsonl").write_text("\n".join(["torn", *lines, ""]))
    assert is_meant(scope, str(tmp_path)) is is_so


def test_a_trial_watches_the_training_that_is_named(tmp_path: Path) -> None:
    folder = write_two(tmp_path)
    watch = TrialWatch(folder, training=2)
    watch.read()
    assert watch.first is not None
    assert watch.first.head is not None
    assert watch.first.head.pid == 20
    assert number_of(folder, watch) == 2
    nobody = TrialWatch(folder, training=3)
    nobody.read()
    assert (nobody.first, nobody.processes) == (None, ())
    scoped = TrialWatch(folder, training=2, is_scoped=True)
    scoped.read()
    assert scoped.first is None  # neither does what a plan says
    assert find_scope(folder, 1) == TrainingScope(
        number=1, words=("python", "a.py", "--lr", "1"), numbers=(0,)
    )


def test_a_training_that_nothing_recognizes_is_refused(tmp_path: Path) -> None:
    folder = write_two(tmp_path)
    (folder / "processes.jsonl").write_text("")
    with pytest.raises(SeveralTrainingsError, match="cannot be tuned alone"):
        find_scope(folder, 1)


def test_a_recipe_keeps_the_training_that_it_is_for() -> None:
    from unit.test_recipe import make

    scope = TrainingScope(number=2, words=("python", "b.py"), numbers=(0, 1))
    text = render_recipe(replace(make(), training=scope), name="tuned.toml")
    assert parse_recipe(text, where="x").training == scope
    assert parse_recipe(render_recipe(make(), name="x"), where="x").training is None
    with pytest.raises(RecipeError, match="`processes` in \\[training\\] must be a list of whole"):
        parse_recipe(text.replace("processes = [0, 1]", 'processes = ["a"]'), where="x")


def test_tune_asks_which_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from steptime.cli import main

    store = tmp_path / ".steptime" / "runs"
    store.mkdir(parents=True)
    run = observed_two(store).run
    record = json.loads((run.folder / "command.json").read_text())
    (run.folder / "command.json").write_text(json.dumps(record | {"cwd": str(tmp_path)}))
    monkeypatch.chdir(tmp_path)
    assert main.main(["tune", "--", "bash", "train.sh"]) == 2
    said = capsys.readouterr().err
    assert "started 2 trainings in run 20260101-000000-abcd: 1 (a.py --lr 1), 2 (b.py)." in said
    assert "--training N" in said
    assert main.main(["tune", "--training", "0", "--", "bash", "train.sh"]) == 2
    assert "--training must be 1 or more" in capsys.readouterr().err
