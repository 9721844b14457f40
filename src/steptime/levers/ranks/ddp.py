"""DistributedDataParallel, as the levers on it find and change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..base import ExchangeFacts, Facts, Session, Undo
from ..tools.owners import put

MAX_POSITIONAL = 7
"""Arguments that a script may give by position so that an option can still be given by name."""


def why_no_exchange(facts: Facts) -> str | None:
    """Return why there is no DistributedDataParallel to change, as a sentence."""
    if facts.exchanges is None:
        if facts.world_size > 1:
            return None
        return "It was not observed that several ranks exchange gradients."
    if not facts.exchanges:
        return "The script does not use DistributedDataParallel."
    if facts.world_size == 1:
        return "There is one rank, so nothing is exchanged."
    return None


def why_no_hook(facts: Facts, with_gloo: str) -> str | None:
    """Return why a communication hook of ours may not be put in, as a sentence.

    Args:
        facts: of script and machine.
        with_gloo: what goes wrong with gloo.
    """
    reason = why_no_exchange(facts)
    if reason is not None:
        return reason
    for one in all_exchanges(facts):
        if one.has_hook:
            return "The script exchanges gradients in its own way (a communication hook)."
        if any(dtype != "float32" for dtype in one.gradient_dtypes):
            return f"Not all gradients are float32: {', '.join(one.gradient_dtypes)}."
        if one.backend == "gloo":
            return with_gloo
        if one.backend not in (None, "nccl"):
            return f"It has not been tested with the backend {one.backend}."
    return None


def all_exchanges(facts: Facts) -> tuple[ExchangeFacts, ...]:
    """Return those that were seen."""
    return facts.exchanges or ()


def find_ddp(torch: Any, model: Any) -> Any:
    """Return the DistributedDataParallel that a model is or directly wraps, else None."""
    ddp_class = torch.nn.parallel.DistributedDataParallel
    if isinstance(model, ddp_class):
        return model
    children = (child for child in model.children() if isinstance(child, ddp_class))
    return next(children, None)


def make_with(session: Session, options: Mapping[str, Any]) -> Undo:
    """Give these options to each DistributedDataParallel that the script makes from now on."""
    ddp_class = session.torch.nn.parallel.DistributedDataParallel
    original = ddp_class.__init__

    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) > MAX_POSITIONAL:
            original(self, *args, **kwargs)
        else:
            session.count("changed")
            original(self, *args, **{**kwargs, **options})

    return put(ddp_class, "__init__", make)


def act_before(owner: Any, name: str, act: Callable[[], None]) -> Undo:
    """Replace `owner.name` by a function that acts first."""
    original = getattr(owner, name)

    def acting(*args: Any, **kwargs: Any) -> Any:
        act()
        return original(*args, **kwargs)

    return put(owner, name, acting)
