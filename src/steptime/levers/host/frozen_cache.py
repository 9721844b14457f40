"""Keeps what frozen modules returned, row by row, and gives it again for rows that come again.

They are kept by a digest of each input row. Before any is used, whole batches are computed again
and compared bit by bit: where a row's output depends on rows beside it, weights follow others, or
numbers are drawn, the module is left alone. Later a difference ends the trial.

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
"""Batches of known rows that are computed all the same; later, one of so many."""


class Outputs:
    """The outputs of one module by input row."""

    def __init__(self, torch: Any, module: Any) -> None:
        self.torch = torch
        self.rows: dict[bytes, Any] = {}
        self.num_bytes = 0
        self.num_known = 0  # batches whose rows were all known
        self.weights = [*module.parameters(), *module.buffers()]
        self.versions = self._versions()
        hooks, parts = ("_forward_hooks", "_forward_pre_hooks"), list(module.modules())
        own = list(module.parameters())
        self.is_off = (
            not own
            or any(p.requires_grad for p in own)
            or any(part.training or getattr(part, hook) for part in parts for hook in hooks)
        )

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
        if not is_plain or len(result) != len(keys) or result.requires_grad:
            self.is_off = True
            return
        for key, before, row in zip(keys, known, result, strict=True):
            if before is None:
                if self.num_bytes + row.nbytes <= limit_bytes:
                    self.rows[key] = row.clone()
                    self.num_bytes += row.nbytes
            elif not same_bits(torch, before, row):
                if self.num_known > NUM_CHECKS:
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


def same_bits(torch: Any, one: Any, other: Any) -> bool:
    """Return whether two tensors hold the same bits; NaN is like itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(*(t.reshape(-1).view(torch.uint8) for t in (one, other))))


def apply(settings: Settings, session: Session) -> Undo:
    """Give the outputs of frozen modules again, for calls without gradients."""
    torch, limit_bytes = session.torch, int(settings["limit_bytes"])
    known: weakref.WeakKeyDictionary[Any, Outputs] = weakref.WeakKeyDictionary()

    def around(call: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
        if module.training or kwargs or len(args) != 1:
            return call(module, *args, **kwargs)
        outputs = known.get(module)
        if outputs is None:
            outputs = known[module] = Outputs(torch, module)
        others = sum(one.num_bytes for one in known.values() if one is not outputs)
        return outputs.run(lambda: call(module, *args), args[0], limit_bytes - others)

    return session.wrap_plain_calls(around)


def applies(facts: Facts) -> str | None:
    """It applies where a module that never trains is called for each batch, on the CPU."""
    if facts.device != "cpu":
        return "The rows are on a device, and reading them there would make the steps wait."
    if facts.has_frozen_calls is False:
        return "No frozen module was seen to be called without gradients, in evaluation mode."
    return None


LEVER = Lever(
    name="frozen_cache",
    title="Keep the outputs of frozen modules for inputs that come again.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward",),
    preserves=Preserves.EXACT,
    when=(
        "A module without gradients, in evaluation mode, is called with one tensor for each batch, "
        "and its inputs come again in later epochs. It pays off from the second epoch on."
    ),
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
