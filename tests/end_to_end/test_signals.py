"""What is looked at beside the steps stands in the run's folder."""

from __future__ import annotations

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
    run_observed,
    updates,
)

pytestmark = [needs_torch, needs_linux]

MIB = 1 << 20

Observe = Callable[..., Path]


@pytest.fixture(scope="module")
def observe(tmp_path_factory: pytest.TempPathFactory) -> Observe:
    """Runs `ailing.py` with these arguments; its run folder. Once for all tests."""

    @cache
    def run(*arguments: str, exit_code: int = 0, **variables: str) -> Path:
        folder = tmp_path_factory.mktemp(arguments[0])
        done = run_observed(folder, "python", SCRIPTS / "ailing.py", *arguments, **variables)
        assert done.exit_code == exit_code, done.stderr.decode()
        assert "guest_failures" not in done.notes
        return run_folder(folder)

    return run


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in rows(folder / "rank-0.jsonl") if line["k"] == kind]


def counts(folder: Path, name: str) -> list[int]:
    """A count of each update."""
    (head,) = lines(folder, "head")
    at = 7 + len(head["buckets"]) + head["counts"].index(name)
    return [row[at] for row in updates(folder / "rank-0.jsonl")]


# -- memory


def test_memory_is_told_as_it_grows_and_at_the_end(observe: Observe) -> None:
    folder = observe("grow")
    found = lines(folder, "m")
    assert len(found) >= 3
    assert found[-1]["n"] == len(updates(folder / "rank-0.jsonl")) == 50
    resident = [line["rss"] for line in found]
    assert resident == sorted(resident)
    assert resident[-1] - resident[0] > 100 * MIB
    assert found[-1]["minflt"] > found[0]["minflt"]
    assert found[-1]["stime_ns"] >= found[0]["stime_ns"]
    assert all(line["allocated"] is None for line in found)


def test_no_line_of_memory_stands_before_the_updates_it_counts(observe: Observe) -> None:
    seen = 0
    for line in rows(observe("grow") / "rank-0.jsonl"):
        if line["k"] == "u":
            seen = line["rows"][-1][0] + 1
        elif line["k"] == "m":
            assert line["n"] == seen


# -- garbage


def test_collections_are_counted_in_the_updates_they_fell_into(observe: Observe) -> None:
    folder = observe("collect")
    assert counts(folder, "gc_pauses") == [0, *[2] * 19]
    times = counts(folder, "gc_ns")
    assert times[0] == 0
    assert min(times[1:]) > 0
