"""A process group that is not there: torch's own fake one, which exchanges nothing.

DDP and FSDP2 run on it as they are, so buckets, shards and what is gathered have their sizes, and
no other rank is needed. In: torch, and the operators that run on fakes. Out: hooks on DDP, and on
the start of a group where a script starts one itself.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ...record.numbers_told import whole_number_in
from ..hooks.patching import put, replace
from .fake_operators import FakeOperators

OLDEST = (2, 6)
"""Releases of torch before this have no public `fully_shard`."""

PLACES = ("/torch/distributed/fsdp/_fully_shard/", "/torch/nn/parallel/distributed.py")
"""Empty tensors that are made here become fake: buckets, gathered parameters, exchanged shards."""

PATIENT_STEPS = 2
"""DDP makes its buckets again as the second step begins, in the order in which gradients came."""


class NoFakeRanksError(Exception):
    """This release of torch has no fake process group that we know."""


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
    see_resizing(torch, operators)
    try:
        yield
    finally:
        del storage_class.resize_
        if storage_class.resize_ is not original:
            storage_class.resize_ = original


def see_resizing(torch: Any, operators: FakeOperators) -> None:
    """Let storages say so before they change their size, for good."""
    original = torch.UntypedStorage.resize_

    def resize_(self: Any, size: int) -> Any:
        operators.resizing(self, int(size))
        return original(self, size)

    torch.UntypedStorage.resize_ = resize_


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


# -- a script that starts its group itself


def hook_group(
    torch: Any,
    operators: FakeOperators,
    begin: Callable[[], None],
    refuse: Callable[[str], None],
) -> None:
    """Let a group that the script starts be a fake one with the same ranks.

    Args:
        torch: the module.
        operators: run on fakes.
        begin: called when a group has begun: from then on, operators must be seen.
        refuse: called with a word where this torch has no fake groups.
    """
    distributed = torch.distributed
    if not distributed.is_available():
        return
    original, new_group = distributed.init_process_group, distributed.new_group

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        place = place_here(kwargs)
        try:
            store = fake_store(torch)
        except NoFakeRanksError as error:
            refuse(f"no_fake_ranks: {error}")
            place = None
        if place is None:
            original(*args, **kwargs)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            original("fake", store=store, rank=place[0], world_size=place[1])
        operators.places = PLACES
        see_resizing(torch, operators)
        hook_ddp(torch)
        hook_objects(distributed)
        begin()

    def make_group(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("backend", None)  # the fake one, whatever the script wants
        return new_group(*args[:2], **kwargs)

    own = "torch.distributed.distributed_c10d", "torch.distributed.device_mesh"
    for module in (distributed, *map(import_module, own)):
        if getattr(module, "init_process_group", None) is original:
            put(module, "init_process_group", init_process_group)
    put(distributed, "new_group", make_group)


def place_here(kwargs: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return rank and number of ranks, as given or by the launcher; None where neither says."""
    told = kwargs.get("rank", -1), kwargs.get("world_size", -1)
    rank, world_size = (
        number if number >= 0 else whole_number_in(os.environ.get(name))
        for number, name in zip(told, ("RANK", "WORLD_SIZE"))
    )
    return None if rank is None or not world_size else (rank, world_size)


def hook_ddp(torch: Any) -> None:
    """Let each DDP have the hook that answers its exchanges; hooks of the script's are left out."""
    ddp_class = torch.nn.parallel.DistributedDataParallel
    original, register = ddp_class.__init__, ddp_class.register_comm_hook

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        register(self, None, unchanged(torch))

    replace(ddp_class, "__init__", __init__)
    replace(ddp_class, "register_comm_hook", lambda self, state, hook: None)


def hook_objects(distributed: Any) -> None:
    """Let objects that ranks exchange be this rank's own."""

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * len(object_list)

    def broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
        return

    put(distributed, "all_gather_object", all_gather_object)
    put(distributed, "broadcast_object_list", broadcast_object_list)
