"""A trial from inside: levers on and off in a real script, and rows that say so."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    HERE,
    SCRIPTS,
    Done,
    Fork,
    Job,
    fork_bare,
    fork_observed,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    updates,
)
from steptime.measure.tried.trial_lines import join_ranks, read_trial

pytestmark = [needs_torch, needs_linux]

SCRIPT = SCRIPTS / "tried.py"


def lever(name: str = "noting", **settings: Any) -> dict[str, Any]:
    return {"name": name, "settings": settings, "file": str(HERE / "levers" / f"{name}.py")}


def plan(*levers: Mapping[str, Any], mode: str = "trial", **fields: Any) -> dict[str, Any]:
    asked = {"schema": 1, "mode": mode, "levers": list(levers), "is_live": False, "quality": None}
    return asked | fields


def start_tried(
    folder: Path, plan: Mapping[str, Any] | None, way: str, num_steps: int, *, nproc: int = 0
) -> Fork | Job:
    """The script under `steptime run`, with a plan; under torchrun on `nproc` ranks."""
    folder.mkdir(exist_ok=True)
    variables = {"NOTES": str(folder / "notes")}
    if plan is not None:
        (folder / "plan.json").write_text(json.dumps(plan))
        variables["STEPTIME_PLAN"] = str(folder / "plan.json")
    launcher = (
        ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}")
        if nproc
        else ()
    )
    command = (sys.executable, *launcher, SCRIPT, way, num_steps)
    return fork_observed(folder, *map(str, command), **variables)


def run_tried(folder: Path, *args: Any, **kwargs: Any) -> Done:
    return start_tried(folder, *args, **kwargs).finish()


def lines(folder: Path, kind: str, *, rank: int = 0) -> list[dict[str, Any]]:
    return [row for row in rows(run_folder(folder) / f"rank-{rank}.jsonl") if row["k"] == kind]


def tags(folder: Path, *, rank: int = 0) -> list[list[int]]:
    return [row for line in lines(folder, "t", rank=rank) for row in line["rows"]]


def notes(folder: Path, *, rank: int = 0) -> list[str]:
    found = (folder / "notes").read_text().splitlines()
    return [line.split(maxsplit=1)[1] for line in found if line.startswith(f"{rank} ")]


def digest(folder: Path) -> str:
    """Of the weights and the random state, as the script left them."""
    return (folder / "digest-0.json").read_text()


def count(found: Sequence[str], text: str) -> int:
    return sum(text in line for line in found)


Tried = Callable[[str], Path]

NUM_STEPS = 8


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """Runs a way to train under a lever that only notes; once for all tests of this module."""

    @cache
    def run(way: str) -> Path:
        folder = tmp_path_factory.mktemp(way)
        nproc = 2 if way == "ranks" else 0
        done = run_tried(folder, plan(lever()), way, NUM_STEPS, nproc=nproc)
        assert done.exit_code == 0, done.stderr.decode()
        assert "guest_failures" not in done.notes
        return folder

    return run


# -- levers that are on from the start


def test_a_lever_of_the_plan_comes_by_at_every_call(tried: Tried) -> None:
    folder = tried("plain")

    each = ["noting call Sequential", "noting called", "noting backward", "noting update AdamW"]
    assert notes(folder) == [
        "noting on",
        "noting model Sequential",
        *each[:3],
        "noting optimizer AdamW",
        *each[3:],
        *each * (NUM_STEPS - 1),
    ]
    (line,) = lines(folder, "lever")
    assert (line["name"], line["state"], line["error"]) == ("noting", None, None)


def test_levers_nest_in_the_order_in_which_they_stand(tmp_path: Path) -> None:
    run_tried(tmp_path, plan(lever(label="a"), lever(label="b")), "plain", 1)

    found = [note for note in notes(tmp_path) if "call" in note]
    assert found == ["a call Sequential", "b call Sequential", "b called", "a called"]


def test_each_model_and_optimizer_of_a_gan_is_met(tried: Tried) -> None:
    found = notes(tried("gan"))

    assert count(found, "noting model") == 2
    assert count(found, "noting optimizer") == 2
    assert count(found, "noting call ") == NUM_STEPS * 5
    assert count(found, "update SGD") == count(found, "update Adam") == NUM_STEPS


def test_with_a_closure_a_lever_comes_by_when_the_gradients_are_there(tried: Tried) -> None:
    found = [note for note in notes(tried("closure")) if "backward" in note or "update" in note]

    assert found == ["noting backward", "noting update AdamW"] * NUM_STEPS


def test_evaluation_and_losses_are_left_alone(tried: Tried) -> None:
    folder = tried("evaluating")

    assert count(notes(folder), "noting call Sequential") == NUM_STEPS
    assert [tag[-1] for tag in tags(folder)][2:] == [16] * (NUM_STEPS - 1)


@pytest.mark.parametrize(
    ("way", "wrapper"),
    [
        ("compiled", "OptimizedModule"),
        pytest.param(
            "ranks",
            "DistributedDataParallel",
            marks=pytest.mark.slow("torchrun and two ranks import torch"),
        ),
    ],
)
def test_the_outermost_call_is_the_wrappers(tried: Tried, way: str, wrapper: str) -> None:
    folder = tried(way)

    for rank in range(2 if way == "ranks" else 1):
        assert count(notes(folder, rank=rank), f"noting call {wrapper}") == NUM_STEPS


# -- what the rows say


@pytest.mark.parametrize(
    ("way", "num_samples"),
    [("plain", 16), ("workers", 16), ("accumulation", 80), ("no_loader", 5), ("tokens", 28)],
)
def test_an_update_says_how_many_samples_it_was_made_from(
    tried: Tried, way: str, num_samples: int
) -> None:
    folder = tried(way)

    found = {tag[0]: tag for tag in tags(folder)}
    stepped = [row[0] for row in updates(run_folder(folder) / "rank-0.jsonl")]
    assert len(stepped) == NUM_STEPS
    for number in stepped[1:]:
        assert found[number][1:] == [-1, 0, 0, 1, num_samples]


def test_a_long_accumulation_has_its_optimizer_among_the_facts(tmp_path: Path) -> None:
    """Before the first update each backward counts, and there is no optimizer yet."""
    run_tried(tmp_path, plan(), "accumulation", NUM_STEPS)

    found = lines(tmp_path, "facts")
    assert [one["name"] for one in found[0]["facts"]["optimizers"]] == []
    assert [one["name"] for one in found[1]["facts"]["optimizers"]] == ["AdamW"]


def test_without_a_plan_nothing_is_said(tmp_path: Path) -> None:
    run_tried(tmp_path, None, "plain", 3)

    for kind in ("t", "lever", "facts", "experiment"):
        assert not lines(tmp_path, kind)


# -- nothing else changes


@pytest.mark.parametrize("way", ["plain", "workers", "gan", "closure", "compiled"])
def test_a_plan_leaves_the_same_bits(tried: Tried, tmp_path: Path, way: str) -> None:
    bare = fork_bare(tmp_path, sys.executable, SCRIPT, way, str(NUM_STEPS)).finish()

    assert bare.exit_code == 0, bare.stderr.decode()
    assert digest(tried(way)) == digest(tmp_path)


# -- failures


@pytest.mark.parametrize("where", ["apply", "call"])
def test_a_lever_that_fails_ends_a_trial(tmp_path: Path, where: str) -> None:
    done = run_tried(tmp_path, plan(lever("failing", where=where)), "plain", 5)

    assert done.exit_code == 86
    line = lines(tmp_path, "lever")[-1]
    assert f"the lever fails in {where}" in line["error"]
    assert not (tmp_path / "digest-0.json").exists()


def test_what_the_model_raises_under_a_lever_is_the_scripts_own(tmp_path: Path) -> None:
    done = run_tried(tmp_path, plan(lever("failing", where="inside_call")), "plain", 5)

    assert done.exit_code == 1
    assert b"must be Tensor" in done.stderr


def test_levers_of_a_recipe_that_fail_are_left_off_and_the_training_goes_on(
    tmp_path: Path,
) -> None:
    places = ("apply", "call", "after_call", "backward", "update", "model", "optimizer")
    levers = [lever("failing", where=where) for where in places]
    done = run_tried(tmp_path, plan(*levers, lever(), mode="recipe"), "plain", 5)

    assert done.exit_code == 0, done.stderr.decode()
    assert "guest_failures" in done.notes
    errors = [line["error"] for line in lines(tmp_path, "lever") if line["error"]]
    assert len(errors) == len(places)
    assert count(notes(tmp_path), "update AdamW") == 5


def test_a_model_that_raises_only_under_a_recipe_is_called_without_it(tmp_path: Path) -> None:
    asked = plan(lever("failing", where="inside_call"), mode="recipe")
    done = run_tried(tmp_path, asked, "plain", 5)

    assert done.exit_code == 0, done.stderr.decode()
    assert len([line for line in lines(tmp_path, "lever") if line["error"]]) == 1


# -- experiments


def live(*states: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    asked = {
        "schema": 1,
        "experiment": 0,
        "starts_at": 6,
        "num_rounds": 3,
        "settle_steps": 1,
        "block_steps": 2,
        "seed": 7,
        "states": [list(state) for state in states],
    }
    return asked | fields


def run_live(
    folder: Path, asked: Mapping[str, Any], way: str, num_steps: int, **kwargs: Any
) -> Done:
    folder.mkdir(exist_ok=True)
    (folder / "live.json").write_text(json.dumps(asked))
    return run_tried(folder, plan(is_live=True), way, num_steps, **kwargs)


def expected_order(num_states: int, num_rounds: int = 3) -> list[tuple[int, int]]:
    """Round and state of each block, as the contract says."""
    found = []
    for number in range(num_rounds):
        order = list(range(num_states))
        random.Random(f"7:0:{number}").shuffle(order)
        found += [(number, state) for state in order]
    return found


def test_states_alternate_as_the_seed_says_and_leave_the_same_bits(tmp_path: Path) -> None:
    bare = fork_bare(tmp_path / "bare", sys.executable, SCRIPT, "plain", "40")
    done = run_live(tmp_path, live([], [lever()], []), "plain", 40)
    assert (bare.finish().exit_code, done.exit_code) == (0, 0)

    assert digest(tmp_path) == digest(tmp_path / "bare")
    found = [tag for tag in tags(tmp_path) if tag[1] == 0]
    assert found[0][0] >= 6
    counted = [(tag[2], tag[3]) for tag in found if tag[4]]
    assert counted == [block for block in expected_order(3) for _ in range(2)]
    assert len(found) == 3 * 3 * 3
    on = [tag[3] == 1 for tag in found]
    assert count(notes(tmp_path), "noting call ") == sum(on)
    assert count(notes(tmp_path), "noting on") == count(notes(tmp_path), "noting off")
    (end,) = lines(tmp_path, "experiment")
    assert (end["experiment"], end["graphs"], end["is_finite"]) == (0, 0, True)
    (line,) = lines(tmp_path, "lever")
    assert (line["experiment"], line["state"], line["error"]) == (0, 1, None)

    (rank,) = read_trial(run_folder(tmp_path))
    blocks = rank.blocks(0)
    assert [(block.round, block.state) for block in blocks] == expected_order(3)
    assert all(block.void is None or block.void == "disturbed" for block in blocks)
    assert all(block.num_samples == 32 and block.wall_s > 0 for block in blocks)


def test_a_gan_changes_state_between_its_rounds(tmp_path: Path) -> None:
    run_live(tmp_path, live([], [lever()]), "gan", 30)

    found = [tag for tag in tags(tmp_path) if tag[1] == 0]
    assert len(found) == 3 * 2 * 3 * 2
    firsts, seconds = found[::2], found[1::2]
    assert [tag[1:5] for tag in firsts] == [tag[1:5] for tag in seconds]
    optimizers = {row[0]: row[2] for row in updates(run_folder(tmp_path) / "rank-0.jsonl")}
    assert {optimizers[tag[0]] for tag in firsts} == {0}


@pytest.mark.slow("torchrun and two ranks import torch")
def test_two_ranks_are_in_the_same_state_in_every_update(tmp_path: Path) -> None:
    done = run_live(tmp_path, live([], [lever()], starts_at=10), "ranks", 40, nproc=2)

    assert done.exit_code == 0, done.stderr.decode()
    both = [[tag[:5] for tag in tags(tmp_path, rank=rank)] for rank in (0, 1)]
    assert both[0] == both[1]
    assert len([tag for tag in both[0] if tag[1] == 0]) == 3 * 2 * 3
    blocks = join_ranks([rank.blocks(0) for rank in read_trial(run_folder(tmp_path))])
    assert [(block.round, block.state) for block in blocks] == expected_order(2)
    assert "ranks_differ" not in {block.void for block in blocks}
    (exchange,) = lines(tmp_path, "facts")[0]["facts"]["exchanges"]
    assert (exchange["backend"], exchange["exchanges_per_update"]) == ("gloo", 1)
    assert exchange["gradient_bytes"] == 4 * (8 * 16 + 16 + 16 + 1)


def test_graphs_are_counted_in_a_compiled_script(tmp_path: Path) -> None:
    done = run_live(tmp_path, live([], [lever()]), "compiled", 40)

    assert done.exit_code == 0, done.stderr.decode()
    (end,) = lines(tmp_path, "experiment")
    assert (end["graphs"], end["fallbacks"]) == (1, 0)


def test_a_state_that_cannot_be_entered_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    asked = live([], [lever(), lever("failing", where="apply")], [lever()])
    done = run_live(tmp_path, asked, "plain", 40)

    assert done.exit_code == 0, done.stderr.decode()
    failed = [line for line in lines(tmp_path, "lever") if line["error"]]
    assert [(line["name"], line["state"]) for line in failed] == [("failing", 1)]
    assert {tag[3] for tag in tags(tmp_path) if tag[1] == 0} == {0, 2}


def test_a_lever_that_fails_inside_a_call_ends_the_trial_with_its_state(tmp_path: Path) -> None:
    done = run_live(tmp_path, live([], [lever("failing", where="call")]), "plain", 40)

    assert done.exit_code == 86
    line = lines(tmp_path, "lever")[-1]
    assert (line["name"], line["state"]) == ("failing", 1)
    assert "the lever fails" in line["error"]


# -- facts


def test_facts_say_what_levers_can_take_back(tmp_path: Path) -> None:
    run_tried(tmp_path, plan(), "left_on", 6)

    early, *_ = lines(tmp_path, "facts")
    facts = early["facts"]
    assert facts["zeroes_gradients"]
    assert facts["checkpoint_ways"] == ["not_reentrant"]
    assert facts["checkpointed_bytes"] >= 16 * 4 * (8 + 16)


def test_facts_say_what_the_script_does_itself(tmp_path: Path) -> None:
    run_tried(tmp_path, plan(), "plain", 6)

    *_, line = lines(tmp_path, "facts")
    facts = line["facts"]
    assert facts["device"] == "cpu"
    assert facts["sets_threads"]
    assert facts["sample_unit"] == "samples"
    for name in ("uses_autocast", "uses_compile", "uses_scaler", "has_convolution"):
        assert facts[name] is False, name
    assert (facts["zeroes_gradients"], facts["checkpoint_ways"]) == (False, [])
    assert facts["num_parameters"] == 8 * 16 + 16 + 16 + 1
    assert facts["parameter_dtypes"] == ["float32"]
    (optimizer,) = facts["optimizers"]
    assert (optimizer["name"], optimizer["is_fused"]) == ("AdamW", False)
    assert optimizer["can_fuse"]
    (loader,) = facts["loaders"]
    assert (loader["dataset"], loader["batch_size"]) == ("TensorDataset", 16)
    assert (loader["num_samples"], loader["is_tensor_dataset"]) == (64, True)


def test_a_probing_trial_says_where_things_are_made_and_called(tmp_path: Path) -> None:
    run_tried(tmp_path, plan(probe=True), "plain", 6)

    *_, line = lines(tmp_path, "facts")
    source = SCRIPT.read_text().splitlines()
    sites = {row["what"]: row for row in line["facts"]["edit_sites"]}
    assert set(sites) == {"optimizer", "loader", "model_call"}
    for what, text in (
        ("optimizer", "AdamW("),
        ("loader", "DataLoader("),
        ("model_call", "model("),
    ):
        file, first, *_ = sites[what]["place"]
        assert Path(file) == SCRIPT
        assert text in source[first - 1]
    assert "output:float" in sites["model_call"]["traits"]
    assert "tensor_dataset" in sites["loader"]["traits"]
    callers = [place for place in sites["model_call"]["callers"] if place[0] == str(SCRIPT)]
    assert "(int(sys.argv[2]))" in source[callers[-1][1] - 1]
