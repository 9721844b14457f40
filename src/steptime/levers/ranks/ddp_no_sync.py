"""Exchange gradients once an update where a script accumulates several backward passes.

The calls before the last one of an update run in `no_sync`: the sum of their gradients is exchanged
with the last. If an update comes early, as at an epoch's end, what was not exchanged yet is
exchanged before anything of torch's reads the gradients: clipping, a gradient scaler, the update.

Source: torch.nn.parallel.DistributedDataParallel.no_sync; Li et al., PyTorch Distributed
(VLDB 2020), 3.2.4.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .ddp import act_before, all_exchanges, find_ddp, why_no_exchange

READERS = ("clip_grad_norm_", "clip_grad_value_", "get_total_norm")
"""Functions of `torch.nn.utils` that read gradients between backward and update."""


def applies(facts: Facts) -> str | None:
    """It applies where each update exchanges as often as it has backward passes, several times."""
    reason = why_no_exchange(facts)
    if reason is not None:
        return reason
    found = all_exchanges(facts)
    if len(found) != 1 or found[0].exchanges_per_update is None:
        return "It is not known that all updates exchange gradients equally often."
    if found[0].exchanges_per_update == 1:
        return "Gradients are exchanged once an update already."
    if found[0].has_hook:
        return "The script exchanges gradients in its own way (a communication hook)."
    if found[0].is_uneven:
        return "Its ranks may have different numbers of batches (`join`)."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the number of backward passes of an update."""
    numbers = {one.exchanges_per_update for one in all_exchanges(facts)}
    return tuple({"passes": number} for number in numbers if number is not None and number > 1)


class Deferred:
    """The exchanges that are put off, and how many calls each update had so far."""

    def __init__(self, torch: Any, passes: int) -> None:
        self.torch = torch
        self.passes = passes
        self.num_calls = 0
        self.is_needed = True
        self.waiting: weakref.WeakSet[Any] = weakref.WeakSet()

    def run(self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """Run a call of a model; its backward exchanges if it is the last one of the update."""
        ddp = find_ddp(self.torch, model)
        if ddp is not None and not ddp.require_backward_grad_sync:
            self.is_needed = False  # the script puts exchanges off itself
        if ddp is None or not self.is_needed:
            return call(model, *args, **kwargs)
        self.num_calls += 1
        if self.num_calls >= self.passes:
            self.waiting.discard(ddp)
            return call(model, *args, **kwargs)
        self.waiting.add(ddp)
        with ddp.no_sync():
            return call(model, *args, **kwargs)

    def begin_update(self, optimizer: Any) -> None:
        """Begin an update, whose gradients must be the same on all ranks."""
        self.exchange()
        self.num_calls = 0

    def exchange(self) -> None:
        """Average what was accumulated and not exchanged; a gradient that no rank has stays so."""
        dist = self.torch.distributed
        for ddp in list(self.waiting):
            self.waiting.discard(ddp)
            group, size = ddp.process_group, ddp.process_group.size()
            parameters = [one for one in ddp.module.parameters() if one.requires_grad]
            used = self.torch.tensor([float(one.grad is not None) for one in parameters])
            used = used.to(parameters[0].device)
            dist.all_reduce(used, group=group)
            for one, number in zip(parameters, used.tolist(), strict=True):
                if number:
                    if one.grad is None:
                        one.grad = self.torch.zeros_like(one)
                    dist.all_reduce(one.grad.div_(size), group=group)


def apply(settings: Settings, session: Session) -> Undo:
    """Put the wrapper around calls, and the late exchange before whatever reads gradients."""
    torch = session.torch
    deferred = Deferred(torch, int(settings["passes"]))
    undos = [session.wrap_calls(deferred.run), session.before_update(deferred.begin_update)]
    readers = [(torch.nn.utils, name) for name in READERS]
    for owner, name in (*readers, (torch.amp.GradScaler, "unscale_")):
        if hasattr(owner, name):
            undos.append(act_before(owner, name, deferred.exchange))

    def undo() -> None:
        deferred.exchange()
        for take_back in reversed(undos):
            take_back()

    return undo


LEVER = Lever(
    name="ddp_no_sync",
    title="Exchange gradients once an update instead of after each backward pass.",
    relieves=("COMMUNICATION_BOUND",),
    phases=("backward", "communication"),
    preserves=Preserves.NUMERIC,
    when="DistributedDataParallel exchanges gradients in each of several backward passes of an "
    "update, equally many in all updates.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        f"is_last = (step + 1) % {settings.get('passes', 'accumulation_steps')} == 0\n"
        "with contextlib.nullcontext() if is_last else model.no_sync():\n"
        "    loss = criterion(model(inputs), targets)\n"
        "    loss.backward()"
    ),
    costs="None in time or memory. A script that reads gradients by itself before an epoch's last, "
    "shorter accumulation is exchanged reads those of its own rank.",
    source="https://docs.pytorch.org/docs/stable/generated/"
    "torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync",
)
