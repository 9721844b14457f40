"""Exchange gradients in bf16: half the bytes, by DistributedDataParallel's communication hook.

Each rank divides its gradients by the number of ranks and rounds them to bf16; they are added in
bf16, and the update gets them as float32. bf16 has the range of float32, so nothing overflows.

Source: torch.distributed.algorithms.ddp_comm_hooks, "DDP Communication Hooks".
"""

from __future__ import annotations

import weakref
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .ddp import find_ddp, why_no_hook

ROUNDOFF = 2.0**-8
"""Unit roundoff of bf16."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    return why_no_hook(
        facts, "With gloo, torch may wait for ever when it frees a model with such a hook."
    )


def make_hook(torch: Any) -> Any:
    """Return the hook; torch asks for its name, and wants no annotations but its own."""

    def exchange_in_bf16(group: Any, bucket: Any) -> Any:
        buffer = bucket.buffer()
        if buffer.dtype is not torch.float32:
            raise TypeError(f"gradients must be float32, got {buffer.dtype}")
        small = buffer.to(torch.bfloat16).div_(group.size())
        future = torch.distributed.all_reduce(small, group=group, async_op=True).get_future()
        return future.then(lambda done: buffer.copy_(done.value()[0]))

    exchange_in_bf16.__annotations__.clear()
    return exchange_in_bf16


def apply(settings: Settings, session: Session) -> Undo:
    """Register the hook before the first call of each DistributedDataParallel without one."""
    torch = session.torch
    hook = make_hook(torch)
    changed: weakref.WeakSet[Any] = weakref.WeakSet()

    def register(model: Any) -> None:
        ddp = find_ddp(torch, model)
        if ddp is not None and not ddp._comm_hooks and ddp not in changed:
            changed.add(ddp)
            ddp.register_comm_hook(ddp.process_group, hook)
            session.count("changed")

    return session.for_each_model(register)


LEVER = Lever(
    name="ddp_bf16",
    title="Exchange gradients between ranks in bf16 instead of float32.",
    relieves=("COMMUNICATION_BOUND",),
    phases=("backward", "communication"),
    preserves=Preserves.NUMERIC,
    roundoff=lambda settings: ROUNDOFF,
    when="Several ranks exchange float32 gradients by DistributedDataParallel and NCCL, without a "
    "communication hook of the script's.",
    applies=applies,
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n\n"
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook)  # once, before training"
    ),
    costs="Gradients are converted twice, which may cost more than the bytes that it saves. Tested "
    "with gloo alone, where it is not offered, and not on a device yet.",
    source="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
)
