"""Our levers on arithmetic, put on by a plan inside a script that knows nothing of them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    SPECIMENS,
    fork_bare,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
)
from steptime.launch.origin import read_capabilities
from steptime.levers import file_of, load
from steptime.levers.precision.matmul_precision import BF16_HARDWARE

pytestmark = [needs_torch, needs_linux]

NUM_STEPS = 12
Wanted = tuple[str, Mapping[str, Any]]

AUTOCAST: Wanted = ("autocast", {"dtype": "bf16"})
HALF: Wanted = ("autocast", {"dtype": "fp16"})
PRODUCTS: Wanted = ("matmul_precision", {"precision": "medium"})
FUSED: Wanted = ("fused_optimizer", {"implementation": "fused"})
LAST: Wanted = ("channels_last", {})
COMPILE: Wanted = ("compile", {"mode": "default"})


def as_planned(wanted: Sequence[Wanted]) -> list[dict[str, Any]]:
    return [{"name": n, "settings": dict(s), "file": file_of(load(n))} for n, s in wanted]


def train(
    folder: Path,
    *wanted: Wanted,
    way: str = "plain",
    factor: float = 1.0,
    nproc: int = 0,
    live: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """What each rank of the script found, with these levers on from the start.

    `live` are states to compare, in blocks of one step.
    """
    folder.mkdir(exist_ok=True)
    asked = {"schema": 1, "mode": "trial", "levers": as_planned(wanted), "quality": None}
    (folder / "plan.json").write_text(json.dumps({**asked, "is_live": live is not None}))
    if live is not None:
        (folder / "live.json").write_text(json.dumps(live))
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}")
    command = (sys.executable, *(launcher if nproc else ()), SCRIPTS / "levered.py", way)
    variables = {"STEPTIME_PLAN": str(folder / "plan.json")} if wanted or live else {}
    num_steps = NUM_STEPS if live is None else 4 * NUM_STEPS
    words = (*map(str, command), str(num_steps), str(factor))
    done = run_forked(folder, *words, **variables)
    assert done.exit_code == 0, done.stderr.decode()
    return [json.loads(file.read_text()) for file in sorted(folder.glob("found-*.json"))]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    (found,) = train(tmp_path_factory.mktemp("without"))
    return found


@pytest.mark.parametrize(
    ("wanted", "tolerance"),
    [
        ([AUTOCAST], 0.02),
        ([PRODUCTS], 0.02),
        ([FUSED], 1e-4),
        ([LAST, FUSED], 1e-4),
        ([FUSED, LAST, HALF], 0.01),
    ],
    ids=["bf16", "products", "fused", "last and fused", "fused, last and fp16"],
)
def test_the_script_trains_as_without(
    tmp_path: Path, without: dict[str, Any], wanted: list[Wanted], tolerance: float
) -> None:
    (found,) = train(tmp_path, *wanted)

    assert found["dtypes"] == ["torch.float32"]
    if wanted != [PRODUCTS] or set(BF16_HARDWARE) & set(read_capabilities() or ()):
        assert found["losses"] != without["losses"]  # else there are no products in bf16
    assert found["losses"] == pytest.approx(without["losses"], rel=tolerance)
    assert found["norms"] == pytest.approx(without["norms"], rel=3 * tolerance)
    assert found["evaluation"] == pytest.approx(without["evaluation"], rel=tolerance)


def test_levers_that_find_nothing_to_undo_leave_every_bit(
    tmp_path: Path, without: dict[str, Any]
) -> None:
    wanted: list[Wanted] = [
        ("no_checkpointing", {}),
        ("gc_control", {"every_updates": 2}),
        ("process_binding", {"to": "physical_cores"}),
    ]
    (found,) = train(tmp_path, *wanted)

    assert found == without


@pytest.mark.parametrize("wanted", [[AUTOCAST, LAST], [FUSED, HALF]], ids=["bf16", "fp16"])
def test_a_checkpoint_needs_nothing_of_ours(tmp_path: Path, wanted: list[Wanted]) -> None:
    train(tmp_path, *wanted)

    assert b"steptime" not in (tmp_path / "checkpoint-plain.pt").read_bytes()


@pytest.mark.slow("a C++ compiler makes the model's kernels")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch needs a C++ compiler")
def test_a_compiled_model_drops_the_same_and_trains_as_without(
    tmp_path: Path, without: dict[str, Any]
) -> None:
    (found,) = train(tmp_path, COMPILE)

    assert found["losses"] != without["losses"]
    assert found["losses"] == pytest.approx(without["losses"], rel=1e-4)
    checkpoint = (tmp_path / "checkpoint-plain.pt").read_bytes()
    assert b"steptime" not in checkpoint
    assert b"_orig_mod" not in checkpoint


@pytest.mark.slow("torch's compiler is imported, and the script runs twice")
@pytest.mark.parametrize(
    ("script", "wanted", "most_graphs"),
    [
        (SCRIPTS / "repeated.py", ("compile", {"mode": "default", "scope": "blocks"}), 2),
        (SPECIMENS / "recompile.py", ("dynamic_shapes", {}), 1),
        (SPECIMENS / "recompile.py", ("no_compile", {}), 0),
    ],
    ids=["blocks", "dynamic shapes", "eager"],
)
def test_with_few_graphs_the_script_prints_what_it_printed(
    tmp_path: Path, script: Path, wanted: Wanted, most_graphs: int
) -> None:
    bare = fork_bare(tmp_path / "bare", "python", script).finish()
    asked = {"schema": 1, "mode": "trial", "levers": as_planned([wanted]), "quality": None}
    folder = tmp_path / "tried"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({**asked, "is_live": False}))
    done = run_forked(folder, "python", script, STEPTIME_PLAN=str(folder / "plan.json"))

    lines = list(rows(run_folder(folder) / "rank-0.jsonl"))
    compiled = [line for line in lines if line["k"] == "c"]
    assert done.stdout == bare.stdout
    assert [line["error"] for line in lines if line["k"] == "lever"] == [None]
    assert (compiled[-1]["graphs"] if compiled else 0) in range(
        min(1, most_graphs), most_graphs + 1
    )
    for saved in (tmp_path / "bare").glob("*.pt"):
        assert (folder / saved.name).read_bytes() == saved.read_bytes()


@pytest.mark.slow("torchrun and two ranks import torch")
def test_ranks_whose_gradients_overflow_in_fp16_go_on_together(tmp_path: Path) -> None:
    found = train(tmp_path, HALF, way="ranks", factor=16.0, nproc=2)

    assert found[0]["weights"] == found[1]["weights"]
    assert all(norm == norm and norm < float("inf") for norm in found[0]["norms"][-2:])
    assert found[0]["losses"][-1] < 4.0


def test_states_in_turns_leave_the_training_as_good(tmp_path: Path) -> None:
    states = ([], [AUTOCAST], [FUSED], [LAST, FUSED], [HALF, LAST], [PRODUCTS], [FUSED, HALF])
    live = {
        "schema": 1,
        "experiment": 0,
        "starts_at": 2,
        "num_rounds": 2,
        "settle_steps": 1,
        "block_steps": 1,
        "seed": 1,
        "states": [as_planned(state) for state in states],
    }

    (found,) = train(tmp_path, live=live)

    lines = list(rows(run_folder(tmp_path) / "rank-0.jsonl"))
    levers = [line for line in lines if line["k"] == "lever"]
    (experiment,) = [line for line in lines if line["k"] == "experiment"]
    blocks = {tuple(row[2:4]) for line in lines if line["k"] == "t" for row in line["rows"]
              if row[1] == 0 and row[4]}  # fmt: skip
    assert [line["error"] for line in levers] == [None] * sum(map(len, states))
    assert experiment["is_finite"]
    assert blocks == {(r, s) for r in range(2) for s in range(len(states))}
    assert found["losses"][-1] < found["losses"][0]
    assert found["evaluation"] < 2.0
