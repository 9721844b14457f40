"""Records what is compared between whole runs of one script: `quality-N.jsonl` and `.bin`.

The plan's `quality` (docs/internals/study-folder.md) switches it on, after all levers are in place;
`verify/recordings.py` reads the files. These runs are not timed, so cost does not matter; the
script's random state must stay as it is. One thread trains; others are not seen.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from zlib import crc32

from ...record import kinds
from ..frameworks.torch.torch_context import TorchContext
from ..hooks.module_tree import has_shape
from .apart_from_padding import ApartFromPadding
from .checksums import as_bytes, crc_of, leaves, sample, width_for
from .quality_batches import Batches
from .quality_lines import QualityFiles, count_graphs, describe_groups, norms, plain
from .variants import DoublePrecision, Perturbation, set_seeds

NORMS_EVERY = 10

MODULE_NUMBERS = ("p", "momentum", "eps", "track_running_stats", "num_groups")
"""Attributes of torch's own layers that change the mathematics and can be switched."""

MAX_MODELS = 100
"""Some scripts make a model in each step; only the first ones are recorded."""

_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|module)\.")


class Settings:
    """The plan's `quality`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.num_updates = int(plan["num_updates"])
        self.seed: int | None = plan.get("seed")
        self.redraw: int | None = plan.get("redraw")
        self.reorder: int | None = plan.get("reorder")
        self.is_double = bool(plan.get("is_double"))
        self.perturb: float | None = plan.get("perturb")
        self.perturb_seed = int(plan.get("perturb_seed") or 0)
        self.first = bool(plan.get("first", True))
        self.is_deterministic = bool(plan.get("is_deterministic", True))

    def facts(self) -> dict[str, Any]:
        """Return those that a reader of the recording needs."""
        names = ("num_updates", "is_double", "perturb", "redraw")
        return {name: getattr(self, name) for name in names}


class Depth(threading.local):
    """Whether the calling thread is inside a model's call or inside backward."""

    calls = 0
    backwards = 0


class QualityWatcher:
    """Takes notes between two updates, and writes them as a line when an update ends."""

    def __init__(self, context: TorchContext, settings: Settings) -> None:
        torch = context.torch
        self.context = context
        self.settings = settings
        self.depth = Depth()
        self.double = DoublePrecision(torch, context.recorder.fail) if settings.is_double else None
        self.perturbation: Perturbation | None = None
        if settings.perturb is not None:
            self.perturbation = Perturbation(torch, settings.perturb, settings.perturb_seed)
        self.stream: QualityFiles | None = None
        self.models: list[tuple[str, Any]] = []
        self.names: dict[int, str] = {}
        self.initial = 0
        self.buffers_before: dict[str, Any] = {}
        self.buffers_crc = 0
        self.apart = ApartFromPadding(torch)
        self.batches = Batches(self.apart)
        self.scaled: tuple[Any, Any] | None = None
        self.pending: Pending | None = None
        self.seen: set[int] = set()
        self.evaluations = 0
        self.compiles = 0
        self.num_updates = 0
        self.is_done = False
        self._begin_update()

    def _begin_update(self) -> None:
        self.losses: list[str] = []
        self.inputs: list[int] = []
        self.contents: list[int] = []
        self.batches.begin_update()
        self.evaluated: list[str] = []
        self.backwards = 0
        self.samples = 0

    def guarded(self, act: Callable[..., None], *args: Any) -> None:
        """Do something of ours; a failure is counted and makes the recording incomplete."""
        if not self.is_done:
            self.context.guarded("quality", act, *args)

    # -- calls

    @property
    def is_idle(self) -> bool:
        """Whether calls may pass unseen; in float64 they are converted to the very end."""
        return self.is_done and self.double is None

    def before_call(self, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Begin an outermost call; return its arguments, converted if this run is in float64."""
        try:
            has_weights = next(iter(module.parameters()), None) is not None
            if self.is_done:
                pass
            elif has_weights and self.context.is_grad_enabled():
                self._begin_call(module, args, kwargs)
            elif has_weights and not module.training:
                self.evaluations += 1
                self._leave_perturbation()
            if self.double is not None:
                module.double()
                args, kwargs = self.double.convert(args), self.double.convert(kwargs)
        except BaseException:
            self.context.recorder.fail("quality")
        return args, kwargs

    def after_call(self, module: Any, result: Any) -> None:
        """End an outermost call; keep the size of an evaluation's result."""
        if module.training or self.context.is_grad_enabled():
            return
        for leaf in leaves(result):
            if hasattr(leaf, "is_floating_point") and leaf.is_floating_point() and leaf.numel():
                size = leaf.detach().double().square().mean().sqrt()
                self.evaluated.append(float(size).hex())
                return

    def _begin_call(self, module: Any, args: Any, kwargs: Any) -> None:
        if not self.models and self.settings.redraw is not None:
            set_seeds(self.context.torch, self.settings.redraw)
        if not any(known() is module for _, known in self.models):
            self._learn(module)
        self.inputs.append(crc_of((args, kwargs)))
        self.contents.append(self.apart.crc_of_call((args, kwargs)))
        sizes = (leaf.shape[0] for leaf in leaves((args, kwargs)) if getattr(leaf, "ndim", 0))
        self.samples += int(next(sizes, 0))
        if self.perturbation is not None:
            self.perturbation.enter(module)

    def _learn(self, module: Any) -> None:
        """Note names, initial weights and buffers of a model before its first call."""
        if len(self.models) >= MAX_MODELS:
            return
        prefix = f"{len(self.models)}:" if self.models else ""
        self.models.append((prefix, weakref.ref(module)))
        weights = list(module.named_parameters())
        for name, weight in weights:
            self.names.setdefault(id(weight), prefix + _WRAPPERS.sub(r"\1", name))
        values, _ = self._sample([weight for _, weight in weights if has_shape(weight)])
        self.initial = crc32(as_bytes(values), self.initial)
        for name, buffer in self._buffers(prefix, module):
            self.buffers_before.setdefault(name, self._sample([buffer])[0])
        self.buffers_crc = self._crc_of_buffers()

    def _leave_perturbation(self) -> None:
        if self.perturbation is not None:
            self.perturbation.leave()

    # -- backward

    def before_backward(self, args: Any, kwargs: Any) -> None:
        """Note the tensors that the script goes backward from: its losses."""
        roots = args[0] if args else kwargs.get("tensors", kwargs.get("self"))
        for root in roots if isinstance(roots, (tuple, list)) else (roots,):
            tensor = root
            if self.scaled is not None and self.scaled[0]() is root:
                tensor = self.scaled[1]
            self.losses.append(float(tensor.detach().double().sum()).hex())
        self.scaled = None

    def after_backward(self) -> None:
        """Restore the weights for whatever the script does next."""
        self.backwards += 1
        self._leave_perturbation()

    # -- updates

    def before_update(self, optimizer: Any, has_closure: bool) -> None:  # noqa: FBT001
        """Note weights and gradients as an outermost optimizer step finds them."""
        self._leave_perturbation()
        if self.double is not None:
            self.double.convert_state(optimizer)
        pending = self.pending = Pending(self.context.recorder.index_of(optimizer), optimizer)
        pending.is_first = pending.optimizer not in self.seen
        self.seen.add(pending.optimizer)
        pending.before, _ = self._sample(pending.weights)
        pending.has_closure = has_closure
        if not has_closure:
            self._take_gradients(pending, optimizer)

    def _take_gradients(self, pending: Pending, optimizer: Any) -> None:
        pending.has_gradient = [weight.grad is not None for weight in pending.weights]
        if not (pending.is_first or self.num_updates % NORMS_EVERY == 0):
            return
        found = [weight for weight in pending.weights if weight.grad is not None]
        pending.gradient_names = [self._name(pending, weight) for weight in found]
        values, pending.gradient_counts = self._sample(
            [weight.grad for weight in found], len(pending.weights)
        )
        scale = getattr(optimizer, "grad_scale", None)  # a fused step divides by the scale itself
        pending.gradients = values if scale is None else values / float(scale)

    def after_update(self, optimizer: Any) -> None:
        """Write the lines of an update that has ended."""
        pending, self.pending = self.pending, None
        if pending is None or pending.optimizer != self.context.recorder.index_of(optimizer):
            return
        if self.stream is None:
            facts = self.settings.facts() | {"initial": self.initial}
            self.stream = QualityFiles(self.context.torch, self.context.recorder.run, facts)
        if not pending.has_gradient:
            pending.has_gradient = [weight.grad is not None for weight in pending.weights]
        after, counts = self._sample(pending.weights)
        if pending.is_first:
            self._write_table(pending, optimizer)
        if pending.is_first and self.settings.first:
            names = [self._name(pending, weight) for weight in pending.weights]
            self._write_first(pending, names, after - pending.before, counts)
        self._write_norms(pending, after - pending.before, counts)
        self.stream.write(self._line(pending, optimizer, after))
        self.num_updates += 1
        self._begin_update()
        if self.num_updates >= self.settings.num_updates:
            self.end()

    def _line(self, pending: Pending, optimizer: Any, after: Any) -> dict[str, Any]:
        before_crc, after_crc = crc32(as_bytes(pending.before)), crc32(as_bytes(after))
        buffers_before, self.buffers_crc = self.buffers_crc, self._crc_of_buffers()
        described = [f"{tuple(w.shape)}{w.dtype}{w.requires_grad}" for w in pending.weights]
        return {
            "k": kinds.QUALITY_UPDATE,
            "n": self.num_updates,
            "opt": pending.optimizer,
            "losses": self.losses,
            "inputs": self.inputs,
            "contents": self.contents,
            "fed": self.batches.fed,
            "epochs": self.batches.epochs,
            "backwards": self.backwards,
            "samples": self.samples,
            "lrs": [float(group.get("lr", 0.0)) for group in optimizer.param_groups],
            "hyper": crc32(repr(describe_groups(optimizer)).encode()),
            "evals": self.evaluations,
            "evaluated": self.evaluated,
            "closure": int(pending.has_closure),
            "grads": sum(pending.has_gradient),
            "mask": crc32(bytes(pending.has_gradient)),
            "weights": after_crc,
            "moved": int(before_crc != after_crc),
            "stats": int(buffers_before != self.buffers_crc),
            "modes": crc32(repr(self._modes()).encode()),
            "kinds": crc32("".join(described).encode()),
            "draws": crc32(as_bytes(self.context.torch.get_rng_state())),
            **self._count_graphs(),
        }

    def _write_table(self, pending: Pending, optimizer: Any) -> None:
        """Write what the checksums of kinds, modes and groups mean, in words."""
        assert self.stream is not None
        self.stream.write(
            {
                "k": kinds.QUALITY_TABLE,
                "opt": pending.optimizer,
                "optimizer": type(optimizer).__name__,
                "groups": describe_groups(optimizer),
                "tensors": [
                    [self._name(pending, w), *map(str, (tuple(w.shape), w.dtype, w.requires_grad))]
                    for w in pending.weights
                ],
                "modes": self._modes(),
            }
        )

    def _write_first(
        self, pending: Pending, names: list[str], changes: Any, counts: list[int]
    ) -> None:
        """Write an optimizer's first update element by element; the very first one with buffers."""
        assert self.stream is not None
        parts = [
            ("gradient", pending.gradient_names, pending.gradients, pending.gradient_counts),
            ("change", names, changes, counts),
        ]
        if not self.num_updates:
            moved = dict(self._all_buffers())
            names = [name for name in self.buffers_before if name in moved]
            pairs = [(self._sample([moved[name]])[0], self.buffers_before[name]) for name in names]
            pairs = [(a, b) if a.numel() == b.numel() else (b, b) for a, b in pairs]
            values = self.context.torch.cat([a - b for a, b in pairs]) if pairs else None
            parts.append(("buffer", names, values, [b.numel() for _, b in pairs]))
        for what, labels, values, sizes in parts:
            if values is not None:
                row = {
                    "k": kinds.QUALITY_FIRST,
                    "n": self.num_updates,
                    "opt": pending.optimizer,
                    "what": what,
                }
                self.stream.write_values(row | {"names": labels, "counts": sizes}, values)

    def _write_norms(self, pending: Pending, changes: Any, counts: list[int]) -> None:
        if self.num_updates % NORMS_EVERY or pending.gradients is None:
            return
        assert self.stream is not None
        row = {"k": kinds.QUALITY_NORMS, "n": self.num_updates, "opt": pending.optimizer}
        row["gradients"] = list(norms(pending.gradients, pending.gradient_counts))
        row["changes"] = list(norms(changes, counts))
        self.stream.write(row)

    def end(self) -> None:
        """Write the last line: enough updates were seen, or the process ends."""
        if self.stream is not None:
            recorder = self.context.recorder
            texts = [
                f"{place}: {text}"
                for place, text in recorder.failure_texts.items()
                if place.startswith("quality")
            ]
            row = {"k": kinds.END, "n": self.num_updates, "evals": self.evaluations}
            self.stream.write(row | {"failures": texts} | self._count_graphs())
        self._leave_perturbation()
        self.is_done = True

    def _count_graphs(self) -> dict[str, int]:
        return count_graphs() | {"compiles": self.compiles}

    # -- names and samples

    def _sample(self, tensors: list[Any], among: int | None = None) -> tuple[Any, list[int]]:
        width = width_for(len(tensors) if among is None else among)
        return sample(self.context.torch, tensors, width)

    def _name(self, pending: Pending, weight: Any) -> str:
        if id(weight) not in self.names:
            position = next(i for i, one in enumerate(pending.weights) if one is weight)
            self.names[id(weight)] = f"optimizer {pending.optimizer}, tensor {position}"
        return self.names[id(weight)]

    def _live_models(self) -> Iterator[tuple[str, Any]]:
        for prefix, known in self.models:
            module = known()
            if module is not None:
                yield prefix, module

    def _buffers(self, prefix: str, module: Any) -> Iterator[tuple[str, Any]]:
        for name, buffer in module.named_buffers():
            # statistics of a norm layer and counters, but no masks or tables
            if has_shape(buffer) and buffer.dim() <= 1:
                yield prefix + _WRAPPERS.sub(r"\1", name), buffer

    def _all_buffers(self) -> Iterator[tuple[str, Any]]:
        for prefix, module in self._live_models():
            yield from self._buffers(prefix, module)

    def _crc_of_buffers(self) -> int:
        values, _ = self._sample([buffer for _, buffer in self._all_buffers()])
        return crc32(as_bytes(values))

    def _modes(self) -> list[list[str]]:
        """Return name, class, mode and switches of each layer of the models."""
        return [
            [
                prefix + _WRAPPERS.sub(r"\1", f"{name}."),
                type(layer).__name__,
                "train" if layer.training else "eval",
                *(repr(plain(getattr(layer, key, None))) for key in MODULE_NUMBERS),
            ]
            for prefix, module in self._live_models()
            for name, layer in module.named_modules()
        ]


class Pending:
    """An update between its beginning and its end."""

    def __init__(self, optimizer_number: int, optimizer: Any) -> None:
        self.optimizer = optimizer_number
        self.weights = [w for group in optimizer.param_groups for w in group["params"]]
        self.is_first = self.has_closure = False
        self.before: Any = None
        self.has_gradient: list[bool] = []
        self.gradients: Any = None
        self.gradient_names: list[str] = []
        self.gradient_counts: list[int] = []
