"""What is looked at beside the steps stands in the run's folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    SPECIMENS,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
    run_observed,
    updates,
)

pytestmark = [needs_torch, needs_linux]

MIB = 1 << 20

Observe = Callable[..., Path]

TRUE = {"collect"}
"""Ways that need a process of their own: a fork's collections copy the memory that it shares."""


@pytest.fixture(scope="module")
def observe(tmp_path_factory: pytest.TempPathFactory) -> Observe:
    """Runs `ailing.py` with these arguments; its run folder. Once for all tests."""

    @cache
    def run(*arguments: str, exit_code: int = 0, **variables: str) -> Path:
        folder = tmp_path_factory.mktemp(arguments[0])
        run = run_observed if arguments[0] in TRUE else run_forked
        done = run(folder, "python", SCRIPTS / "ailing.py", *arguments, **variables)
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


def test_a_generator_s_graph_is_kept_while_its_discriminator_is_trained(tmp_path: Path) -> None:
    done = run_forked(tmp_path, "python", SPECIMENS / "gan.py")
    processes = rows(run_folder(tmp_path) / "processes.jsonl")
    followed = [line for line in processes if line["k"] == "mem" and line.get("step")][-1]
    batch, noise, hidden, wide = 8, 8, 64, 32

    # The generator's: noise, and what the ReLU returned. The discriminator's: its input, and what
    # the leaky ReLU takes and returns. The loss's: scores and labels.
    kept = 4 * batch * ((noise + hidden) + (wide + 2 * hidden) + (1 + 1))
    parts = followed["parts"]
    assert parts["activations"]["bytes"] + parts["logits"]["bytes"] == kept
    # In the timeline, what a call was given (noise, labels) is among the inputs.
    names = ("activations", "logits", "inputs")
    held = [
        sum(one["by_part"].get(name, 0) for name in names)
        for one in followed["step"]["instants"]
        if one["phase"] == "backward"
    ]
    assert max(held) >= kept
    assert "guest_failures" not in done.notes


def test_memory_is_told_as_it_grows_and_at_the_end(observe: Observe) -> None:
    folder = observe("grow")
    found = lines(folder, "m")
    assert len(found) >= 3
    num_updates = len(updates(folder / "rank-0.jsonl"))
    assert found[-1]["n"] == 1 + num_updates == 51  # the first backward call has a row of its own
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


@pytest.mark.slow("two full collections a step of all that torch holds")
def test_collections_are_counted_in_the_updates_they_fell_into(observe: Observe) -> None:
    folder = observe("collect")
    assert counts(folder, "gc_pauses") == [0, *[2] * 19]
    times = counts(folder, "gc_ns")
    assert times[0] == 0
    assert min(times[1:]) > 0


# -- switches


def switches(folder: Path) -> set[str]:
    return {name for line in lines(folder, "q") for name in line["on"]}


def test_anomaly_detection_around_the_backward_alone_is_seen(observe: Observe) -> None:
    assert switches(observe("detect")) == {"anomaly_mode"}


def test_deterministic_algorithms_are_seen(observe: Observe) -> None:
    assert switches(observe("determine")) == {"deterministic"}


def test_tracing_is_seen(observe: Observe) -> None:
    assert switches(observe("trace")) == {"tracing"}


@pytest.mark.slow("a debugging allocator makes the import of torch ten times slower")
def test_a_debugging_allocator_is_seen(observe: Observe) -> None:
    assert switches(observe("collect", PYTHONMALLOC="debug")) == {"malloc_debug"}


def test_a_profiler_is_seen_unless_it_watches_a_few_steps(observe: Observe) -> None:
    assert switches(observe("profile", "30")) == {"profiler"}
    assert switches(observe("profile", "2")) == set()


@pytest.mark.slow("two full collections a step of all that torch holds")
def test_a_training_without_switches_has_none(observe: Observe) -> None:
    assert switches(observe("collect")) == set()


# -- compiling


def test_graph_breaks_and_recompiles_are_told_with_their_places(observe: Observe) -> None:
    folder = observe("compile_badly")
    last = lines(folder, "c")[-1]
    file = str(SCRIPTS / "ailing.py")
    source = (SCRIPTS / "ailing.py").read_text().splitlines()
    assert last["graphs"] >= 6
    ((_, *place, times),) = last["breaks"]
    assert (place[0], times) == (file, 1)
    assert source[place[1] - 1].strip() == "torch._dynamo.graph_break()"
    ((reason, *place, times),) = last["recompiles"]
    assert "factor" in reason
    assert (place[0], times) == (file, 3)
    assert source[place[1] - 1].strip().startswith("def scaled")


def test_a_training_that_compiles_nothing_tells_nothing(observe: Observe) -> None:
    assert lines(observe("grow"), "c") == []


# -- how it ended


def ends(folder: Path) -> list[dict[str, Any]]:
    return [line for line in rows(folder / "processes.jsonl") if line["k"] == "exit"]


@pytest.mark.parametrize(
    ("place", "phase", "line"),
    [
        ("forward", "forward", "return x + torch.empty(1 << 50)"),
        ("backward", "backward", "return torch.empty(1 << 50)"),
        ("worker", "input_wait", "return torch.empty(1 << 50)"),
    ],
)
def test_a_want_of_memory_is_told_with_place_and_phase(
    observe: Observe, place: str, phase: str, line: str
) -> None:
    (end,) = ends(observe("fail", place, exit_code=1))
    error = end["error"]
    assert (error["type"], error["phase"], error["is_memory"]) == ("RuntimeError", phase, True)
    assert error["requested_bytes"] == 4 << 50
    assert error["file"] == str(SCRIPTS / "ailing.py")
    source = (SCRIPTS / "ailing.py").read_text().splitlines()
    assert source[error["line"] - 1].strip() == line
    assert end["updates"] == 3


def test_another_error_is_told_too(observe: Observe) -> None:
    (end,) = ends(observe("fail", "nowhere", exit_code=1))
    assert end["error"]["text"] == "not for want of memory"
    assert (end["error"]["phase"], end["error"]["is_memory"]) == ("other", False)


@pytest.mark.slow("a spawned child imports torch")
def test_the_error_of_a_spawned_rank_is_told(observe: Observe) -> None:
    found = [end["error"] for end in ends(observe("fail_in_child", exit_code=1))]
    assert ("RuntimeError", True) in [(error["type"], error["is_memory"]) for error in found]


@pytest.mark.parametrize("code", ["0", "7"])
def test_an_exit_by_plan_is_no_error(observe: Observe, code: str) -> None:
    (end,) = ends(observe("leave", code, exit_code=int(code)))
    assert "error" not in end
