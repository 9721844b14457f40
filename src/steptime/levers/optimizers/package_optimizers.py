"""Optimizers of other packages in the place of torch's Adam and AdamW, with settings mapped.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..base import Facts, Session, Undo
from ..tools.module_modes import Evaluations
from .low_memory_states import make_quantized, named_as_torchs


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageOptimizer:
    """An optimizer of another package, and how the settings of AdamW are mapped to its own.

    Attributes:
        module: where it is; `package` is what pip calls it, and `fact` says whether it is there.
        name: its class.
        rate: its rate / that of AdamW.
        takes_betas: AdamW's betas mean the same to it; `takes_eps` the same.
        can_couple: it can add its decay to the gradient, as Adam does.
        has_modes: it keeps one set of weights to train and another to evaluate.
    """

    module: str
    package: str
    fact: str
    name: str
    rate: float = 1.0
    takes_betas: bool = True
    takes_eps: bool = True
    can_couple: bool = False
    has_modes: bool = False


KINDS = {
    # Its update is a sign, so as long as AdamW's is at most: the authors take a tenth to a third of
    # the rate, and as many times the decay.
    "lion": PackageOptimizer(
        module="pytorch_optimizer",
        package="pytorch_optimizer",
        fact="has_pytorch_optimizer",
        name="Lion",
        rate=0.1,
        takes_betas=False,
        takes_eps=False,
        can_couple=True,
    ),
    "soap": PackageOptimizer(
        module="pytorch_optimizer",
        package="pytorch_optimizer",
        fact="has_pytorch_optimizer",
        name="SOAP",
    ),
    "schedule_free": PackageOptimizer(
        module="schedulefree",
        package="schedulefree",
        fact="has_schedulefree",
        name="AdamWScheduleFree",
        has_modes=True,
    ),
    "adam_8bit": PackageOptimizer(
        module="torchao.optim", package="torchao", fact="has_torchao", name="AdamW8bit"
    ),
}


def found_in(facts: Facts) -> list[str]:
    """Return the kinds whose package the script's Python has."""
    return [kind for kind, one in KINDS.items() if getattr(facts, one.fact)]


def install_line() -> str:
    """Return what installs all of them."""
    return "pip install " + " ".join(sorted({one.package for one in KINDS.values()}))


def make_kind(kind: str, name: str) -> type:
    """Return the optimizer under a name of torch's, made with the arguments of that class.

    Raises:
        ImportError: its package is not there; the text says how to install it.
    """
    one = KINDS[kind]
    try:
        theirs = getattr(import_module(one.module), one.name)
    except ImportError as error:
        raise ImportError(
            f"{one.name} is in the package {one.package}, which the script's Python lacks: "
            f"`pip install {one.package}` there"
        ) from error
    if kind == "adam_8bit":
        return make_quantized(name, "8bit")
    own_decay = 0.01 if name == "AdamW" else 0.0
    more: dict[str, Any] = {"weight_decouple": name == "AdamW"} if one.can_couple else {}
    # What a decoupled decay takes in a step is rate x decay, which stays.
    is_scaled = name == "AdamW" or not one.can_couple
    decay_factor = 1 / one.rate if is_scaled else 1.0

    def __init__(  # noqa: N807
        self: Any,
        params: Any,
        lr: Any = 1e-3,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = own_decay,
        amsgrad: bool = False,  # noqa: FBT001, FBT002 - as torch has it
        **others: Any,
    ) -> None:
        taken = dict(more)
        taken |= {"betas": tuple(map(float, betas))} if one.takes_betas else {}
        taken |= {"eps": eps} if one.takes_eps else {}
        groups = mapped(params, decay_factor, drops=() if one.takes_betas else ("betas",))
        decay = weight_decay * decay_factor
        theirs.__init__(self, groups, lr=float(lr), weight_decay=decay, **taken)
        if one.has_modes:
            self.train()

    if one.has_modes:
        return named_as_torchs(name, theirs, __init__, step=stepping_to_the_highest(theirs))
    return named_as_torchs(name, theirs, __init__)


def mapped(params: Any, decay_factor: float, *, drops: tuple[str, ...]) -> list[Any]:
    """Return parameters or groups of them, with the decay that a group sets mapped too."""
    found = []
    for one in params:
        if isinstance(one, dict):
            group = {key: value for key, value in one.items() if key not in drops}
            if "weight_decay" in group:
                group["weight_decay"] = group["weight_decay"] * decay_factor
            found.append(group)
        else:
            found.append(one)
    return found


def stepping_to_the_highest(theirs: type) -> Callable[..., Any]:
    """Return a step with the highest rate so far: a warm-up counts, and a schedule's fall not."""
    own_step: Any = theirs.step  # type: ignore[attr-defined]
    # torch's hooks run around our step already; what switches gradients off stays on.
    step_of_theirs: Any = inspect.unwrap(own_step, stop=lambda one: not hasattr(one, "hooked"))

    def step(self: Any, closure: Any = None) -> Any:
        own = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["highest_lr"] = max(float(group["lr"]), group.get("highest_lr", 0.0))
            group["lr"] = group["highest_lr"]
        self.train()
        try:
            return step_of_theirs(self, closure)
        finally:
            for group, rate in zip(self.param_groups, own, strict=True):
                group["lr"] = rate

    return step


class ModesOfOptimizers:
    """Brings optimizers to evaluation, and back, with the models whose weights they train."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self._kinds = kinds
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self, session: Session) -> list[Undo]:
        """Begin; return what ends it."""
        evaluations = Evaluations(session, holds=self._holds, enter=self._enter, leave=self._leave)
        return [evaluations.watch(), session.for_each_optimizer(self._add)]

    def _add(self, optimizer: Any) -> None:
        if isinstance(optimizer, self._kinds):
            self._optimizers.add(optimizer)

    def _trained_in(self, module: Any) -> list[Any]:
        """Return the optimizers all of whose weights are in a module."""
        own = {id(one) for one in module.parameters()}
        return [
            one
            for one in self._optimizers
            if all(id(p) in own for group in one.param_groups for p in group["params"])
        ]

    def _holds(self, module: Any) -> bool:
        return bool(self._trained_in(module))

    def _enter(self, module: Any) -> None:
        for one in self._trained_in(module):
            one.eval()

    def _leave(self, module: Any) -> None:
        for one in self._trained_in(module):
            one.train()
