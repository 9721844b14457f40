"""One rank of several, alone in its process: torch's own DDP and FSDP2 on fakes.

In: a copy of a model with fake parameters, and how it is spread. Out: the model as this rank has
it, and its optimizer. Torch's fake process group exchanges nothing, so buckets, shards and what is
gathered have their sizes, and no other rank is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from steptime.errors import UsageError
from steptime.guest.forecast.fake_group import (
    PLACES,
    answer_exchanges,
    fake_store,
    resizing_seen,
)
from steptime.guest.forecast.fake_operators import FakeOperators

WORDS = ("ddp", "zero1", "zero2", "zero3", "fsdp2")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """Which rank of how many, and what each of them holds.

    Attributes:
        world_size: number of ranks.
        rank: the one that is forecast; with shards, the first has most.
        sharding: `ddp`; `zero1`, DDP with states by torch's ZeroRedundancyOptimizer; `fsdp2` or
            `zero3`, `fully_shard` of each member of the model's lists of modules and of the model;
            `zero2`, the same with `reshard_after_forward=False`; or a function that wraps the model
            as the script does, and returns what is called.

    Raises:
        UsageError: the numbers or the word are none that can be forecast.
    """

    world_size: int
    rank: int = 0
    sharding: str | Callable[[Any], Any] = "ddp"

    def __post_init__(self) -> None:
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise UsageError(
                "`rank` must lie from 0 to below `world_size`, "
                f"got {self.rank} of {self.world_size}"
            )
        if not callable(self.sharding) and self.sharding not in WORDS:
            raise UsageError(
                f"`sharding` must be one of {', '.join(WORDS)}, or a function of the model, "
                f"got {self.sharding!r}"
            )

    def wrap(self, torch: Any, model: Any) -> Any:
        """Return the model as the script of this rank calls it."""
        try:
            wrapped = self._wrap(torch, model)
            answer_exchanges(torch, wrapped)
        except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError) as error:
            raise UsageError(
                f"the model cannot be spread over {self.world_size} ranks: {error}"
            ) from error
        return wrapped

    def _wrap(self, torch: Any, model: Any) -> Any:
        if callable(self.sharding):
            wrapped = self.sharding(model)
            return model if wrapped is None else wrapped
        if self.sharding in ("ddp", "zero1"):
            return torch.nn.parallel.DistributedDataParallel(model)
        device = next(model.parameters()).device.type
        mesh = torch.distributed.device_mesh.init_device_mesh(device, (self.world_size,))
        how = {"reshard_after_forward": False} if self.sharding == "zero2" else {}
        for unit in (*blocks_of(torch, model), model):
            torch.distributed.fsdp.fully_shard(unit, mesh=mesh, **how)
        return model

    def make_optimizer(self, model: Any, optimizer: Callable[[Any], Any]) -> Any:
        """Return the optimizer of this rank, which drops the gradients of all parameters."""
        trained = [one for one in model.parameters() if one.requires_grad]
        own = self._partition(trained) if self.sharding == "zero1" else trained
        if not own:
            raise UsageError(
                f"rank {self.rank} of {self.world_size} has no parameter to update; "
                "forecast rank 0, or fewer ranks."
            )
        stepper = optimizer(own)
        stepper.zero_grad = model.zero_grad
        return stepper

    def _partition(self, parameters: list[Any]) -> list[Any]:
        """Return what this rank updates: each parameter goes to the rank that has least so far."""
        sizes = [0] * self.world_size
        own = []
        for one in sorted(parameters, key=lambda p: p.numel(), reverse=True):
            rank = sizes.index(min(sizes))
            sizes[rank] += one.numel()
            if rank == self.rank:
                own.append(one)
        return own


def blocks_of(torch: Any, model: Any) -> list[Any]:
    """Return the modules that are gathered one at a time: members of the outermost lists.

    Where a model has no list of modules, they are the members of its outermost sequences.
    """
    for kind in (torch.nn.ModuleList, torch.nn.Sequential):
        found: list[Any] = []
        inside: set[int] = set()
        for holder in model.modules():
            if isinstance(holder, kind) and id(holder) not in inside:
                found += [one for one in holder if next(one.parameters(), None) is not None]
                inside |= {id(one) for one in holder.modules()}
        if found:
            return found
    return []


@contextmanager
def joined(torch: Any, ranks: RankPlan, operators: FakeOperators) -> Iterator[None]:
    """Be one rank of a group that is not there; nothing of it stays.

    Raises:
        UsageError: this process is in a group already.
        NoFakeRanksError: torch is too old, or was built without `torch.distributed`.
    """
    store = fake_store(torch)
    distributed = torch.distributed
    if distributed.is_initialized():
        raise UsageError(
            "a forecast for several ranks needs a process that is in no process group; "
            "ask before `init_process_group`, or in a process of its own."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what DDP and FSDP2 say about a script
        distributed.init_process_group(
            "fake", store=store, rank=ranks.rank, world_size=ranks.world_size
        )
        operators.places = PLACES
        try:
            with resizing_seen(torch, operators):
                yield
        finally:
            distributed.destroy_process_group()
