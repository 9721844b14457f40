"""How the model's calls of one counted update compute attention, and why not by a faster kernel.

In: torch's two functions for attention, wrapped while such a call runs, and the operators that the
dispatch mode sees. Out: rows of a line `at`. Which kernel torch takes, and whether it took a faster
one without the mask, dropout or dtype, is asked of torch's own choice, `_fused_sdp_choice`.
Softmax whose result is multiplied outside of both functions is attention in single operators.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from json import dumps
from typing import Any

from ....record import kinds
from ...hooks.patching import drop_frame
from ...sites.file_owners import FileOwners
from ...sites.frames import Frames, innermost

BACKENDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn", 4: "overrideable"}
"""`torch.nn.attention.SDPBackend` in words."""

RANKS = {"math": 0, "efficient": 1}
"""The slower ones; any other is as fast as torch can."""

FASTEST = 2

ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")

MAX_ROWS = 50

Key = tuple[str, int, str, str, tuple[str, ...], str]


class AttentionCalls:
    """The attention of one update; `fail` counts a failure of ours by place."""

    def __init__(self, torch: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        self.fail = fail
        self.frames = Frames(FileOwners(torch))
        self.rows: dict[Key, list[int]] = {}  # number of calls, and the longest rows
        self.weights: dict[int, tuple[int, ...]] = {}  # results of softmax, by their memory
        self.num_inside = 0
        self.wrapped: list[tuple[str, Any, Any]] = []
        aten = torch.ops.aten
        self.softmax, self.product = aten._softmax.default, aten.bmm.default

    # -- while the model's call runs

    def open(self) -> None:
        """Wrap torch's functions; the operators of a call follow."""
        if self.wrapped:
            return  # by another thread
        functional = self.torch.nn.functional
        makers = {
            "scaled_dot_product_attention": self._see_attention,
            "multi_head_attention_forward": self._see_layer,
        }
        self.weights.clear()
        for name, see in makers.items():
            original = getattr(functional, name)
            ours = self._around(original, see)
            self.wrapped.append((name, original, ours))
            setattr(functional, name, ours)

    def close(self) -> None:
        """Put torch's functions back, unless somebody else has replaced ours since."""
        functional = self.torch.nn.functional
        for name, original, ours in self.wrapped:
            if getattr(functional, name) is ours:
                setattr(functional, name, original)
        self.wrapped.clear()
        self.weights.clear()

    def _around(self, original: Any, see: Callable[..., None]) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.num_inside += 1
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                drop_frame(error)
                raise
            finally:
                self.num_inside -= 1
            try:
                see(*args, **kwargs)
            except BaseException:
                self.fail("attention")
            return result

        return wrapper

    def see_operator(self, func: Any, args: Any, result: Any) -> None:
        """Take an operator that ran: softmax over scores, or the product with its result."""
        if func is self.softmax:
            if result.dim() in (3, 4) and args[1] in (-1, result.dim() - 1):
                self.weights[result.data_ptr()] = (result.numel(), *result.shape[-2:])
        elif func is self.product and not self.num_inside and self.weights:
            weights = args[0]
            if self.weights.get(weights.data_ptr()) == (weights.numel(), *weights.shape[-2:]):
                self._add("written", "none", (), weights.dtype, max(weights.shape[-2:]))

    # -- torch's functions

    def _see_layer(self, *args: Any, **kwargs: Any) -> None:
        """Take a call of the function behind `nn.MultiheadAttention`, if it computes weights."""
        if len(args) < 16 and kwargs.get("need_weights", True):
            length = max(args[0].shape[0], args[1].shape[0])
            self._add("layer", "none", ("need_weights",), args[0].dtype, length)

    def _see_attention(self, *args: Any, **kwargs: Any) -> None:
        """Take a call of `scaled_dot_product_attention`."""
        given = dict(zip(ARGUMENTS, args)) | kwargs
        with self.torch._C._DisableTorchDispatch(), self.torch.no_grad():
            backend = self._choose(given)
            words = tuple(self._words(given, rank_of(backend)))
        query, key = given["query"], given["key"]
        length = max(query.shape[-2], key.shape[-2])
        self._add("function", backend, words, query.dtype, length)

    def _choose(self, given: dict[str, Any]) -> str:
        """Return the backend that torch takes for these arguments."""
        named = {name: given[name] for name in ("scale", "enable_gqa") if given.get(name)}
        heads = [self._as_cast(given[name]) for name in ARGUMENTS[:3]]
        mask = given.get("attn_mask")
        rest = (mask, given.get("dropout_p", 0.0), given.get("is_causal", False))
        chosen = int(self.torch._fused_sdp_choice(*heads, *rest, **named))
        return BACKENDS.get(chosen, "math")

    def _as_cast(self, tensor: Any) -> Any:
        """Return one row of a batch in the dtype that autocast gives it."""
        torch, kind = self.torch, tensor.device.type
        if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.float64:
            return tensor
        row = tensor[:1] if tensor.dim() == 4 else tensor
        return row.to(torch.get_autocast_dtype(kind)).requires_grad_(tensor.requires_grad)

    def _words(self, given: dict[str, Any], rank: int) -> Iterator[str]:
        """Yield what a faster kernel would not have refused, alone or else all together."""
        if rank == FASTEST:
            return
        changes = dict(self._changes(given))
        alone = [word for word, new in changes.items() if self._is_faster(given | new, rank)]
        if alone:
            yield alone[0]
            return
        everything = dict(given)
        for new in changes.values():
            everything |= new
        if len(changes) > 1 and self._is_faster(everything, rank):
            yield from changes
        else:
            yield "no_single_reason"

    def _is_faster(self, given: dict[str, Any], rank: int) -> bool:
        return rank_of(self._choose(given)) > rank

    def _changes(self, given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what may keep torch from a faster kernel, and the arguments without it."""
        torch, mask = self.torch, given.get("attn_mask")
        if mask is not None and mask.requires_grad:
            yield "mask_gradient", {"attn_mask": mask.detach()}
        elif mask is not None:
            yield "mask", {"attn_mask": None}
        if given.get("dropout_p"):
            yield "dropout", {"dropout_p": 0.0}
        heads = [given[name] for name in ARGUMENTS[:3]]
        if heads[0].dtype == torch.float32 and heads[0].device.type == "cuda":
            rows = [one[:1].to(torch.bfloat16) for one in heads]
            yield "dtype", dict(zip(ARGUMENTS, rows))
        if any(one.stride(-1) != 1 for one in heads):
            yield "layout", dict(zip(ARGUMENTS, [one[:1].contiguous() for one in heads]))

    # -- what came of it

    def _add(self, way: str, backend: str, words: tuple[str, ...], dtype: Any, length: int) -> None:
        place = innermost(self.frames.stack(sys._getframe(2)))
        file, line = ("", 0) if place is None else place[:2]
        key = (file, line, way, backend, words, str(dtype).removeprefix("torch."))
        if key in self.rows or len(self.rows) < MAX_ROWS:
            row = self.rows.setdefault(key, [0, 0])
            row[0] += 1
            row[1] = max(row[1], int(length))

    def line(self, num_updates: int) -> str:
        """Return the line that tells of the update."""
        names = ("file", "line", "way", "backend", "reasons", "dtype", "num", "length")
        calls = [dict(zip(names, (*key, *row))) for key, row in self.rows.items()]
        return dumps({"k": kinds.ATTENTION, "n": num_updates, "calls": calls}) + "\n"


def rank_of(backend: str) -> int:
    """Return how fast a backend is."""
    return RANKS.get(backend, FASTEST)
