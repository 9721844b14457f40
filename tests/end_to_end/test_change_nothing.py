"""Training under Steptime is, bit for bit, the training without it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    SCRIPTS,
    SPECIMENS,
    Done,
    names_in,
    needs_linux,
    needs_torch,
    run_both,
    run_both_truly,
    start_bare,
)
from rotation import rotates, takes

pytestmark = [needs_torch, needs_linux]

Compare = Callable[..., tuple[Path, Done, Done]]

NOT_COMPARED = {
    "busy_neighbor",
    "desync",
    "file_moves",
    "gpu_copies",
    "gpu_sync",
    "graph_features",
    "hogwild",
    "neighbor_sampling",
    "neighbor_starts",
    "out_of_memory",
    "spawned",
    "throttled",
    "waits_for_ever",
    "writes",
}
"""As many steps as time allows; a GPU; a death; a main module of its own for the children; one
that never ends; one that needs pyg-lib; children that write into each other's weights; and those
that train nothing. test_desync.py compares `desync`, which starts its ranks itself."""

TRUE = {"states.py", "failing.py"}
"""They look at their own process and their own traceback, which a fork has another one of."""

BY_HAND = {"by_hand", "fitted", "own_backward"}
"""No optimizer of torch's holds their weights: what they print tells of them."""

ALONE, TOGETHER = [], []
for _path in sorted([*SPECIMENS.glob("*.py"), *(SPECIMENS / "work").glob("*.py")]):
    if _path.stem not in NOT_COMPARED and not _path.stem.startswith("_"):
        _is_distributed = "init_process_group" in _path.read_text()
        (TOGETHER if _is_distributed else ALONE).append(_path)
TOGETHER.append(SCRIPTS / "ddp_hook.py")


def paths_in_turn(paths: Iterable[Path]) -> list[Any]:
    """Parameters of which the fast check takes those of the specimens whose turn it is."""
    return [pytest.param(path, id=path.stem, marks=rotates(path.stem)) for path in paths]


@pytest.fixture(scope="module")
def compare(tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Runs a script bare and observed, once for all tests of this module."""

    @cache
    def run(script: str, *arguments: str | Path) -> tuple[Path, Done, Done]:
        folder = tmp_path_factory.mktemp(script.removesuffix(".py"))
        run = run_both_truly if script in TRUE else run_both
        return folder, *run(folder, "python", SCRIPTS / script, *arguments)

    return run


@pytest.fixture(scope="module")
def together(compare: Compare, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs the specimens in one process on so many ranks, bare and observed; those in turn."""
    rotates = request.config.getoption("--fast")

    def run(num_ranks: int, paths: Sequence[Path]) -> tuple[Path, Done, Done]:
        chosen = [path for path in paths if not rotates or takes(path.stem)]
        return compare("run_specimens.py", str(num_ranks), "found.json", *chosen)

    return run


def found(compared: tuple[Path, Done, Done], name: str, file: str = "found.json"):
    """What both runs found under a name."""
    folder, bare, observed = compared
    assert (bare.exit_code, observed.exit_code) == (0, 0), bare.stderr + observed.stderr
    results = [json.loads((folder / arm / file).read_text()) for arm in ("bare", "observed")]
    return [result[name] for result in results]


# -- losses, weights and random state


@pytest.mark.parametrize("way", names_in("states.py", "WAYS"))
@pytest.mark.slow("dozens of ways to train, bare and observed")
@pytest.mark.core
def test_a_way_to_train_leaves_the_same_bits(compare: Compare, way: str) -> None:
    bare, observed = found(compare("states.py"), way)
    assert observed == bare


@pytest.mark.slow("dozens of ways to train, bare and observed")
@pytest.mark.core
def test_those_trainings_were_seen(compare: Compare) -> None:
    _, _, observed = compare("states.py")
    assert observed.data["num_optimizer_updates"] > 30
    assert observed.data["workers"]["num_batches"] > 0
    assert "guest_failures" not in observed.notes


def test_a_model_that_is_traced_again_and_again_has_the_same_graphs(compare: Compare) -> None:
    _, bare, observed = compare("traced_again.py")
    assert (bare.exit_code, observed.exit_code) == (0, 0), observed.stderr
    assert observed.stdout == bare.stdout
    assert b"TracerWarning" not in observed.stderr


@pytest.mark.parametrize("specimen", paths_in_turn(ALONE))
@pytest.mark.slow("every specimen, bare and observed")
def test_a_specimen_leaves_the_same_bits(together: Callable[..., Any], specimen: Path) -> None:
    bare, observed = found(together(1, ALONE), specimen.stem)
    assert bare["failure"] is None
    assert bool(bare["trained"]) != (specimen.stem in BY_HAND)
    assert observed == bare


@pytest.mark.parametrize("specimen", paths_in_turn(TOGETHER))
@pytest.mark.slow("every specimen for two ranks, bare and observed")
def test_two_ranks_leave_the_same_bits(together: Callable[..., Any], specimen: Path) -> None:
    for rank in range(2):
        bare, observed = found(together(2, TOGETHER), specimen.stem, f"{rank}-found.json")
        assert bare["failure"] is None
        assert bare["trained"]
        assert observed == bare


@pytest.mark.slow("every specimen, bare and observed")
def test_no_specimen_makes_the_guest_fail(together: Callable[..., Any]) -> None:
    for num_ranks, scripts in ((1, ALONE), (2, TOGETHER)):
        _, _, observed = together(num_ranks, scripts)
        assert observed.data["num_steps"] > 0
        assert observed.data["num_ranks"] == num_ranks
        assert "guest_failures" not in observed.notes


# -- what is saved


@pytest.mark.parametrize("file", ["model.pt", "checkpoint.pt"])
def test_a_checkpoint_holds_the_same_bytes(compare: Compare, file: str) -> None:
    folder, _, _ = compare("states.py")
    assert (folder / "observed" / file).read_bytes() == (folder / "bare" / file).read_bytes()


def test_what_was_saved_under_steptime_loads_without_it(compare: Compare) -> None:
    folder, _, _ = compare("states.py")
    code = (
        "import pickle, sys, torch\n"
        "model = torch.load('observed/model.pt', weights_only=False)\n"
        "saved = torch.load('observed/checkpoint.pt', weights_only=False)\n"
        "model.load_state_dict(saved['model'])\n"
        "saved['optimizer'].step()\n"
        "functions = pickle.load(open('observed/functions.pickle', 'rb'))\n"
        "assert functions == [torch.nn.Module.__call__, torch.Tensor.item, torch.save]\n"
        "print(model(torch.ones(8)).shape, [n for n in sys.modules if 'steptime' in n])\n"
    )
    done = start_bare(folder, "python", "-c", code).finish()
    assert done.stdout == b"torch.Size([1]) []\n", done.stderr.decode()


# -- what dynamo sees

OPTIMIZERS_STEP = {
    "a_compiled_optimizer_step",
    "a_function_that_steps",
    "a_parallel_model_that_steps",
}
"""There torch's own frame around the hooks breaks the graph; ours in it makes dynamo skip it."""


@pytest.mark.slow("every case is compiled, bare and observed")
@pytest.mark.parametrize("case", names_in("compiled.py", "CASES"))
def test_dynamo_makes_the_same_graphs(compare: Compare, case: str) -> None:
    bare, observed = found(compare("compiled.py"), case)
    for key in ("losses", "graphs", "recompiles"):
        assert observed[key] == bare[key], key
    if case in OPTIMIZERS_STEP:
        assert observed["breaks"] <= bare["breaks"]
    else:
        assert observed["breaks"] == bare["breaks"]


@pytest.mark.slow("every case is compiled, bare and observed")
def test_the_compiled_trainings_were_seen(compare: Compare) -> None:
    _, _, observed = compare("compiled.py")
    # The function that steps runs for sixty updates, twelve other trainings for three each.
    assert observed.data["num_optimizer_updates"] == 60 + 3 * 12
    assert observed.data["spans"]["compile"]["total_s"] > 0


# -- what Python says of a failure


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 keeps a frame of ours in the traceback"
)
@pytest.mark.parametrize("case", names_in("failing.py", "CASES"))
def test_a_traceback_is_the_same(compare: Compare, case: str) -> None:
    bare, observed = found(compare("failing.py"), case)
    assert observed == bare


@pytest.mark.parametrize("case", names_in("failing.py", "WARNINGS"))
def test_a_warning_names_the_same_line(compare: Compare, case: str) -> None:
    bare, observed = found(compare("failing.py"), case)
    assert len(bare) == 1
    assert observed == bare


def test_a_script_that_crashes_before_its_first_step_is_untouched(compare: Compare) -> None:
    _, bare, observed = compare("failing.py", "a_wrong_shape")
    assert observed.exit_code == bare.exit_code == 1
    assert observed.stdout == bare.stdout
    theirs, _, ours = observed.stderr.decode().rpartition("steptime: ")
    if sys.version_info >= (3, 11):
        assert theirs == bare.stderr.decode()
    assert re.fullmatch(r"the command failed .* before its first step; .*\n", ours)
    assert observed.data["end"]["exit_code"] == 1
    assert observed.data["num_steps"] == 0
