"""The lines that a step's time goes to are those of the script."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
    updates,
)

pytestmark = [needs_torch, needs_linux]

Seen = Callable[..., tuple[Path, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Runs a script observed, once; its folder and the lines of its stream."""

    @cache
    def run(script: str, *arguments: str) -> tuple[Path, list[dict[str, Any]]]:
        folder = tmp_path_factory.mktemp("sites")
        done = run_forked(folder, "python", SCRIPTS / script, *arguments)
        assert done.exit_code == 0, done.stderr.decode()
        assert "guest_failures" not in done.notes
        return folder, rows(run_folder(folder) / "rank-0.jsonl")

    return run


@pytest.fixture
def seen(run: Seen) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """The lines of sites.py by name; what was seen in the steps and of the spans."""
    folder, lines = run("sites.py", "48", "evaluate")
    names = json.loads((folder / "lines.json").read_text())
    return names, last(lines, "s"), last(lines, "a")


def last(lines: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return [line for line in lines if line["k"] == kind][-1]


def sites(line: dict[str, Any], what: str) -> dict[tuple[int, int], tuple[int, int | None]]:
    """Calls and time by lines."""
    found = [site for site in line["sites"] if site[0] == what]
    return {(first, end): (calls, ns) for _, _, first, end, calls, ns in found}


@pytest.mark.parametrize("what", ["input_wait", "forward", "backward", "optimizer"])
def test_what_is_entered_has_the_line_that_called(seen: Any, what: str) -> None:
    lines, steps, _ = seen
    ((place, (calls, ns)),) = sites(steps, what).items()

    assert steps["updates"] == 4
    assert place == (lines[what], lines[what])
    assert calls == steps["updates"]
    assert ns > 0


def test_the_files_are_the_scripts(seen: Any) -> None:
    _, steps, spans = seen
    files = {site[1] for line in (steps, spans) for site in line["sites"]}
    assert files == {str(SCRIPTS / "sites.py")}


def test_what_lies_between_two_markers_has_the_lines_from_one_to_the_other(seen: Any) -> None:
    lines, steps, _ = seen
    others, losses = sites(steps, "other"), sites(steps, "loss")

    calls, ns = others[lines["input_wait"], lines["forward"]]
    assert calls == 4
    assert ns == max(ns for _, ns in others.values())
    assert set(losses) == {(lines["forward"], lines["update"])}


def test_the_end_of_a_loops_body_leads_to_its_head(seen: Any) -> None:
    lines, steps, _ = seen
    assert (lines["reads"], lines["end of the loop"]) in sites(steps, "other")
    assert (lines["update"], lines["first read"]) in sites(steps, "other")


def test_reads_are_counted_by_line_and_not_timed(seen: Any) -> None:
    lines, steps, _ = seen
    assert sites(steps, "sync") == {
        (lines["first read"],) * 2: (4, None),
        (lines["reads"],) * 2: (8, None),
    }


def test_clipping_has_its_line_among_the_processing_of_gradients(seen: Any) -> None:
    lines, steps, _ = seen
    assert sites(steps, "gradient_processing")[(lines["gradient_processing"],) * 2][0] == 4


def test_spans_are_counted_over_the_whole_run(seen: Any) -> None:
    lines, steps, spans = seen
    ((evaluation, (calls, ns)),) = sites(spans, "evaluation").items()
    ((checkpoint, (saved, _)),) = sites(spans, "checkpoint").items()

    assert evaluation == (lines["evaluation"],) * 2
    assert (calls, saved) == (6, 3)
    assert ns > 0
    assert checkpoint == (lines["checkpoint"],) * 2
    assert not {"evaluation", "checkpoint"} & {site[0] for site in steps["sites"]}


def test_a_span_takes_all_the_time_that_the_run_booked_to_it(run: Seen) -> None:
    folder, lines = run("sites.py", "48", "evaluate")
    bucket = lines[0]["buckets"].index("evaluation")
    booked = sum(row[7 + bucket] for row in updates(run_folder(folder) / "rank-0.jsonl"))
    booked += last(lines, "end")["tail"][bucket]

    ((_, (_, ns)),) = sites(last(lines, "a"), "evaluation").items()
    assert ns == booked


def test_an_end_within_a_spell_leaves_what_was_seen(run: Seen) -> None:
    _, lines = run("sites.py", "26")
    assert last(lines, "s")["updates"] == 2


def test_the_updates_of_a_spell_are_marked_and_no_others(run: Seen) -> None:
    folder, _ = run("sites.py", "48", "evaluate")
    steps = [row for row in updates(run_folder(folder) / "rank-0.jsonl") if row[2] >= 0]
    marked = [i for i, row in enumerate(steps) if row[6] == 2]
    assert marked[-4:] == [24, 25, 26, 27]
    assert not {*range(4, 11), *range(28, 48)} & {*marked}


def test_functions_called_anew_are_not_taken_for_one_that_goes_on(run: Seen) -> None:
    _, lines = run("taking_turns.py", "20")
    steps = last(lines, "s")
    text = (SCRIPTS / "taking_turns.py").read_text().splitlines()
    (loop,) = [i for i, line in enumerate(text, start=1) if line.startswith("for _ in")]

    assert steps["updates"] == 4
    assert sites(steps, "other").keys() >= {(loop + 1, loop + 2), (loop, loop + 1)}
    assert {calls for calls, _ in sites(steps, "optimizer").values()} == {2}
