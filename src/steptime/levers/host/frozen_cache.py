"""Keeps what frozen modules returned, row by row, and gives it again for rows that come again.

A frozen encoder computes the same outputs in each epoch. They are kept by a digest of each input
row. Before any of them is used, whole batches are computed again and compared bit by bit: where a
row's output depends on the rows beside it, where weights follow others, or where numbers are drawn,
the module is left alone. Later, now and then, too: a difference ends a trial, and the use in a run.

Source: the cached latents of https://github.com/huggingface/diffusers/pull/6076.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import bytes_to_keep

NUM_CHECKS, CHECK_EVERY = 3, 64
"""Known batches that are computed all the same before any is used; from then on one of so many."""


class Outputs:
    """The outputs of one module by input row."""

    def __init__(self, session: Session, module: Any) -> None:
        self.torch, self.is_trial = session.torch, session.is_trial
        self.module = weakref.ref(module)
        self.rows: dict[bytes, Any] = {}
        self.num_bytes = 0
        self.num_known = 0  # batches whose rows were all known
        self.weights = [*module.parameters(), *module.buffers()]
        self.versions = self._versions()
        own = list(module.parameters())
        is_frozen = bool(own) and not any(p.requires_grad for p in own)
        self.is_off = not is_frozen or any(map(is_left, module.modules()))

    def _versions(self) -> list[tuple[int, int]]:
        return [(one.data_ptr(), one._version) for one in self.weights]

    def run(self, call: Callable[[], Any], given: Any, limit_bytes: int) -> Any:
        """Return the module's output, from what is kept where that is certain."""
        if self._versions() != self.versions:
            self.is_off = True
        keys = None if self.is_off else self._keys(given)
        if keys is None:
            return call()
        known = [self.rows.get(key) for key in keys]
        is_known = all(row is not None for row in known)
        self.num_known += is_known
        is_check = self.num_known <= NUM_CHECKS or self.num_known % CHECK_EVERY == 0
        if is_known and not is_check:
            return self.torch.stack(known)
        result = call()
        self._compare(result, keys, known, limit_bytes)
        return result

    def _compare(self, result: Any, keys: list[bytes], known: list[Any], limit_bytes: int) -> None:
        """Compare a result with what is kept of it, and keep what is new."""
        torch = self.torch
        is_plain = type(result) is torch.Tensor and result.dim() and result.is_contiguous()
        self.is_off = not is_plain or len(result) != len(keys) or result.requires_grad
        if self.is_off:
            return
        for key, before, row in zip(keys, known, result, strict=True):
            if before is None:
                if self.num_bytes + row.nbytes <= limit_bytes:
                    self.rows[key] = row.clone()
                    self.num_bytes += row.nbytes
            elif not same_bits(torch, before, row):
                if self.is_trial and self.num_known > NUM_CHECKS:
                    raise RuntimeError("a frozen module returned something else for the same rows")
                self.is_off = True
                self.rows.clear()
                return

    def _keys(self, given: Any) -> list[bytes] | None:
        """Return a digest of each row of what the module is given."""
        torch = self.torch
        if type(given) is not torch.Tensor or not given.is_cpu or not given.dim():
            return None
        if given.requires_grad or given.is_sparse or given.is_quantized or not given.numel():
            return None
        how = f"{given.dtype} {tuple(given.shape[1:])} {torch.is_autocast_enabled('cpu')}".encode()
        flat = given.detach().contiguous().reshape(len(given), -1).view(torch.uint8).numpy()
        return [blake2b(row.data, digest_size=16, key=how[:64]).digest() for row in flat]


def is_left(part: Any) -> bool:
    """Return whether a module trains, or is watched by hooks that a kept output would not call."""
    return bool(part.training or part._forward_hooks or part._forward_pre_hooks)


def same_bits(torch: Any, one: Any, other: Any) -> bool:
    """Return whether two tensors hold the same bits; NaN is like itself."""
    is_alike = one.dtype == other.dtype and one.shape == other.shape
    return is_alike and bool(torch.equal(*(t.reshape(-1).view(torch.uint8) for t in (one, other))))


def apply(settings: Settings, session: Session) -> Undo:
    """Give the outputs of frozen modules again, for calls without gradients."""
    limit_bytes, known = int(settings["limit_bytes"]), dict[int, Outputs]()

    def around(call: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        if module.training or kwargs or len(args) != 1:
            return call(module, *args, **kwargs)
        outputs = known.get(id(module))  # it may have a comparison of its own, and no hash
        if outputs is None or outputs.module() is not module:
            outputs = known[id(module)] = Outputs(session, module)
        left = limit_bytes - sum(one.num_bytes for one in known.values() if one is not outputs)
        return outputs.run(lambda: call(module, *args), args[0], left)

    return session.wrap_plain_calls(around)


def applies(facts: Facts) -> str | None:
    """It applies where a module that never trains is called, on the CPU."""
    if facts.device != "cpu":
        return "The rows are on a device, and reading them there would make the steps wait."
    is_seen = facts.has_frozen_calls is not False
    return None if is_seen else "No frozen module was seen to be called without gradients."


LEVER = Lever(
    name="frozen_cache",
    title="Keep the outputs of frozen modules for inputs that come again.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward",),
    preserves=Preserves.EXACT,
    when="A module without gradients, in evaluation mode, is called with one tensor, and its "
    "inputs come again. It pays off from the second epoch on.",
    applies=applies,
    space=lambda facts: ({"limit_bytes": bytes_to_keep(facts)},),
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "with torch.no_grad():\n"
        "    outputs = torch.cat([encoder(rows) for rows in inputs.split(64)])  # once\n"
        "loader = DataLoader(TensorDataset(outputs, targets), ...)"
    ),
    costs="Memory for the outputs of all rows. Each row is read for its digest in each epoch, and "
    "the first epoch gains nothing.",
    source="https://github.com/huggingface/diffusers/pull/6076",
)
