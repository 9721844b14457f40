"""What levers on several ranks need to know: each DistributedDataParallel, and how often it acts.

The fields are those of `ExchangeFacts` in levers/base.py.
"""

from __future__ import annotations

import os
from typing import Any

from ....record.numbers_told import whole_number_in

INFINIBAND = "/sys/class/infiniband"

MAX_UPDATES = 200
"""Updates whose exchanges are counted: whatever a script does, it does in the first ones."""


class ExchangeBook:
    """Counts the exchanges of gradients in each update."""

    def __init__(self, torch: Any) -> None:
        is_there = torch.distributed.is_available()
        self.ddp_class = torch.nn.parallel.DistributedDataParallel if is_there else None
        self.num_calls = self.num_backwards = self.num_updates = 0
        self.rounds: set[tuple[int, int]] = set()
        """Calls that exchange, and backward calls, of each update."""

    def see_call(self, model: Any) -> None:
        """Count an outermost call with gradients whose backward exchanges them."""
        if self.ddp_class is None or self.num_updates >= MAX_UPDATES:
            return
        found = find_ddp(self.ddp_class, model)
        if found is not None and found.require_backward_grad_sync:
            self.num_calls += 1

    def see_backward(self) -> None:
        """Count an outermost backward call."""
        self.num_backwards += 1

    def end_update(self, *, is_open: bool) -> None:
        """End an update; it counts if the script was alone."""
        if is_open and self.num_updates < MAX_UPDATES:
            self.rounds.add((self.num_calls, self.num_backwards))
            self.num_updates += 1
        self.num_calls = self.num_backwards = 0

    @property
    def exchanges_per_update(self) -> int | None:
        """The exchanges of each update, if they are as many as its backward calls, and constant."""
        if len(self.rounds) != 1:
            return None
        ((num_calls, num_backwards),) = self.rounds
        return num_calls if num_calls in (1, num_backwards) else None

    @property
    def backwards_per_update(self) -> int | None:
        """The backward calls of each update; None where they differed, or none was seen."""
        numbers = {num_backwards for _, num_backwards in self.rounds}
        return numbers.pop() if len(numbers) == 1 else None

    def describe(self, models: list[Any]) -> dict[str, Any]:
        """Return the exchanges of the models that were called."""
        if self.ddp_class is None:
            return {"exchanges": []}
        found = [find_ddp(self.ddp_class, model) for model in models]
        unique = {id(one): one for one in found if one is not None}.values()
        number = self.exchanges_per_update if len(unique) == 1 else None
        return {
            "exchanges": [describe_ddp(one, number) for one in unique],
            "num_nodes": count_nodes(),
            "has_infiniband": os.path.isdir(INFINIBAND) and bool(os.listdir(INFINIBAND)),
        }


def count_nodes() -> int | None:
    """Return on how many machines the ranks are, if the launcher says it."""
    all_ranks, ranks_here = map(
        whole_number_in, (os.environ.get("WORLD_SIZE"), os.environ.get("LOCAL_WORLD_SIZE"))
    )
    return all_ranks // ranks_here if all_ranks and ranks_here else None


def find_ddp(ddp_class: type, model: Any) -> Any:
    """Return the DistributedDataParallel that a model is or directly wraps, else None."""
    if isinstance(model, ddp_class):
        return model
    children = (child for child in model.children() if isinstance(child, ddp_class))
    return next(children, None)


def describe_ddp(model: Any, exchanges_per_update: int | None) -> dict[str, Any]:
    """Return an `ExchangeFacts`."""
    from torch.distributed import get_backend

    parameters = [p for p in model.module.parameters() if p.requires_grad]
    told = model._get_ddp_logging_data()
    can_be_static = told.get("can_set_static_graph")
    return {
        "gradient_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "bucket_bytes": int(model.bucket_bytes_cap),
        "gradient_dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
        "backend": str(get_backend(model.process_group)),
        "has_bucket_view": bool(model.gradient_as_bucket_view),
        "is_static": bool(model.static_graph),
        "finds_unused": bool(model.find_unused_parameters),
        "can_be_static": None if can_be_static is None else bool(can_be_static),
        "has_hook": bool(model._comm_hooks) or bool(told.get("comm_hook")),
        "is_uneven": bool(model._join_config.enable),
        "exchanges_per_update": exchanges_per_update,
    }
