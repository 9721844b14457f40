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
from importlib import import_module
from typing import Any

from steptime.errors import UsageError
from steptime.guest.forecast.fake_operators import FakeOperators

WORDS = ("ddp", "zero1", "zero2", "zero3", "fsdp2")

OLDEST = (2, 6)
"""Releases of torch before this have no public `fully_shard`."""

PLACES = ("/torch/distributed/fsdp/_fully_shard/", "/torch/nn/parallel/distributed.py")
"""Empty tensors that are made here become fake: buckets, gathered parameters, exchanged shards."""

PATIENT_STEPS = 2
"""DDP makes its buckets again as the second step begins, in the order in which gradients came."""


class NoFakeRanksError(Exception):
    """This release of torch has no fake process group that we know."""


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


def fake_store(torch: Any) -> Any:
    """Return what a fake process group keeps its state in; raise where this torch has none."""
    version = tuple(int(part) for part in str(torch.__version__).split(".")[:2])
    if version < OLDEST or not torch.distributed.is_available():
        raise NoFakeRanksError(f"torch {torch.__version__}")
    try:
        import_module("torch.distributed.device_mesh")
        import_module("torch.distributed.fsdp")
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise NoFakeRanksError(f"torch {torch.__version__}: {error}") from error
    return FakeStore()


@contextmanager
def resizing_seen(torch: Any, operators: FakeOperators) -> Iterator[None]:
    """Tell who follows a step when a storage changes its size: so FSDP2 frees what it gathered."""
    storage_class = torch.UntypedStorage
    original = storage_class.resize_

    def resize_(self: Any, size: int) -> Any:
        operators.resizing(self, int(size))
        return original(self, size)

    storage_class.resize_ = resize_
    try:
        yield
    finally:
        del storage_class.resize_
        if storage_class.resize_ is not original:
            storage_class.resize_ = original


def answer_exchanges(torch: Any, model: Any) -> None:
    """Answer DDP's exchanges at once: the fake group's own answers have no result."""
    for module in model.modules():
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            module.register_comm_hook(None, unchanged(torch))


def unchanged(torch: Any) -> Callable[[Any, Any], Any]:
    """Return a communication hook of DDP that returns a bucket as it is."""

    def hook(state: Any, bucket: Any) -> Any:
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    hook.__annotations__ = {
        "bucket": torch.distributed.GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }
    return hook
