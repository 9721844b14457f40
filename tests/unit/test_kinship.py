"""What a process writes about those that it trains with: store, launcher, shared weights."""

from __future__ import annotations

import mmap
import os
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.watchers import kinship
from steptime.guest.watchers.kinship import describe_kinship, launched_rank, whole_number

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}


def make_torch(store: Any = None, *, rank: int = 0, world: int = 0) -> Any:
    """A torch whose process group is initialized if `world` is given."""
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: world > 0,
        get_rank=lambda: rank,
        get_world_size=lambda: world,
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    return SimpleNamespace(distributed=distributed, Tensor=type("Tensor", (), {}))


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable of a launcher is set."""
    for name in [*os.environ]:
        if name.startswith(("RANK", "WORLD", "MASTER", "TORCHELASTIC", "SLURM", "OMPI", "PMI")):
            monkeypatch.delenv(name)
    return monkeypatch


def described(variables: pytest.MonkeyPatch, torch: Any = None, **environment: str) -> Any:
    for name, value in environment.items():
        variables.setenv(name, value)
    return describe_kinship(torch or make_torch())


def test_a_process_alone_shares_nothing(variables: pytest.MonkeyPatch) -> None:
    found = described(variables)
    assert (found["rank"], found["world_size"], found["rank_source"]) == (None, 1, "order")
    assert (found["group"], found["group_source"], found["ppid"]) == (None, None, os.getppid())


def test_ranks_share_the_store_of_their_group(variables: pytest.MonkeyPatch) -> None:
    store = SimpleNamespace(underlying_store=SimpleNamespace(host="here", port=29500))
    found = described(variables, make_torch(store, rank=1, world=2), RANK="7", WORLD_SIZE="9")
    assert (found["rank"], found["world_size"]) == (1, 2)
    assert (found["group"], found["group_source"]) == ("tcp://here:29500", "store")
    store = SimpleNamespace(path="/tmp/rendezvous")
    assert described(variables, make_torch(store, world=2))["group"] == "file:///tmp/rendezvous"


def test_a_group_of_one_is_no_group_whatever_the_launcher_says(
    variables: pytest.MonkeyPatch,
) -> None:
    assert described(variables, make_torch(world=1), **TORCHRUN)["group"] is None


def test_before_a_group_is_there_the_launcher_tells(variables: pytest.MonkeyPatch) -> None:
    found = described(variables, **TORCHRUN)
    assert (found["rank"], found["rank_source"]) == (1, "environment")
    assert (found["group"], found["group_source"]) == ("tcp://here:29500", "launcher")
    elastic = {"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "2"}
    found = described(variables, **elastic)
    assert (found["group"], found["job"], found["restart"]) == ("elastic:abc", "abc", 2)
    assert described(variables, TORCHELASTIC_RUN_ID="none")["job"] is None


@pytest.mark.parametrize(
    ("environment", "group"),
    [
        ({"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, None),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, None),
        ({"WORLD_SIZE": "2", "RANK": "0"}, None),
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_STEP_NUM_TASKS": "4",
                "SLURM_JOB_ID": "77",
                "SLURM_STEP_ID": "0",
            },
            "slurm:77.0",
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77"}, None),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "PMIX_NAMESPACE": "prterun-1",
            },
            "mpi:prterun-1",
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, f"mpi:{os.getppid()}"),
    ],
)
def test_launchers_are_known_by_their_variables(
    variables: pytest.MonkeyPatch, environment: dict[str, str], group: str | None
) -> None:
    assert described(variables, **environment)["group"] == group


@pytest.mark.parametrize("text", ["", "²", "-1", "1.0", "9" * 30, "10000001", " 1"])
def test_a_variable_that_is_no_number_is_not_believed(text: str) -> None:
    assert whole_number(text) is None
    assert launched_rank({"RANK": text, "WORLD_SIZE": "2"}) is None


def test_a_rank_without_a_world_is_alone() -> None:
    assert launched_rank({"RANK": "3"}) == (3, 1)


def test_weights_in_shared_memory_are_known_by_their_file(tmp_path: Any) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(mmap.PAGESIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        import ctypes

        address = ctypes.addressof(held := ctypes.c_char.from_buffer(mapped))
        found = kinship._mapped_file(address)
        assert found is not None
        assert found.endswith(f":{path.stat().st_ino}")
        del held
