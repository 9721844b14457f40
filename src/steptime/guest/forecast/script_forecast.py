"""Forecasts the peak of a script's own step: parameters become fake as the script makes them.

In: the plan of a child that exists for nothing else. Out: one line in forecast.jsonl, written once
the second update has ended (the first one makes the optimizer's states), or as soon as it is known
that there will be none. The script's loop runs as it is: its batches are real, and whatever touches
a parameter has a shape and no memory.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from json import dumps
from typing import Any

from ...record import kinds
from ...record.files import FORECAST
from ..frameworks.torch.torch_context import TorchContext
from ..hooks.patching import put, replace
from ..memory.dissect import mapped_sizes
from ..timeline.recorder import append
from .fake_group import PATIENT_STEPS, hook_group
from .fake_mode import Fakes, NoFakesError
from .fake_operators import FakeOperators
from .fake_step import FakeStep, device_of, make_mode
from .fake_values import answer_for_fakes
from .measured_operators import MeasuredOperators
from .script_facts import ScriptFacts

MAX_ROUNDS = 4
"""So many updates of the first optimizer are made while others step for the first time."""


def install_forecast(context: TorchContext, wish: Mapping[str, Any]) -> None:
    """Put the hooks of a forecast in place.

    Args:
        context: of this process.
        wish: `forecast` of the plan: `measure`, and `cap_bytes`, the address space of the process.
    """
    path = os.path.join(context.recorder.run, FORECAST)
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o644))
    try:
        limit_address_space(wish.get("cap_bytes"))
        install_hooks(context, wish, path)
    except NoFakesError as error:
        write(path, None, [f"no_fake_tensors: {error}"])
    except Exception as error:  # the script must not train for real: the parent ends it now
        write(path, None, [f"failed: {type(error).__name__}: {error}"])


def install_hooks(context: TorchContext, wish: Mapping[str, Any], path: str) -> None:
    """Put the hooks in place; raise NoFakesError where this torch has no fakes that we know."""
    torch = context.torch
    fakes = Fakes(torch)
    script = ScriptFacts(torch, context.recorder.fail)
    forecast = ScriptForecast(
        torch,
        fakes,
        tell=lambda facts, unknown: write(path, facts, unknown),
        measured=MeasuredOperators(fakes) if wish.get("measure") else None,
        script=script,
    )
    context.guarded("forecast", script.hook)
    hook_parameters(torch, forecast)
    hook_backward(torch, forecast)
    answer_for_fakes(torch, fakes, forecast.operators)
    join, refuse = forecast.guarded(forecast.join), forecast.refuse
    context.guarded("forecast", hook_group, torch, forecast.operators, join, refuse)
    modules = torch.nn.modules.module
    modules.register_module_forward_pre_hook(forecast.guarded(forecast.see_call))
    modules.register_module_forward_hook(forecast.guarded(forecast.see_result), always_call=True)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(forecast.guarded(forecast.see_update))


def limit_address_space(cap_bytes: int | None) -> None:
    """Bound what this process may map [bytes]; without a bound, nothing is changed."""
    if not cap_bytes:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = cap_bytes if hard == resource.RLIM_INFINITY else min(cap_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def write(path: str, facts: Mapping[str, Any] | None, unknown: Any) -> None:
    """Write the line that the parent waits for."""
    rank, world_size = rank_here()
    line = {
        "k": kinds.FORECAST,
        "pid": os.getpid(),
        "rank": rank,
        "world_size": world_size,
        "facts": facts,
        "unknown": list(unknown),
    }
    append(path, dumps(line) + "\n")


def rank_here() -> tuple[int, int]:
    """Return the rank and the number of ranks of the script's group; 0 of 1 without one."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except (AttributeError, RuntimeError, ValueError):
        pass
    return 0, 1


def process_bytes() -> int | None:
    """Return what the process has besides the model [bytes]: libraries, objects, data.

    Its weights and activations are fakes. None where the system does not say.
    """
    try:
        return mapped_sizes()[1]
    except (OSError, KeyError, ValueError):
        return None


def hook_parameters(torch: Any, forecast: ScriptForecast) -> None:
    """Let modules register fakes of their parameters."""
    module_class = torch.nn.Module
    original = module_class.register_parameter

    def register_parameter(self: Any, name: str, param: Any) -> None:
        original(self, name, forecast.fake_of(param))

    replace(module_class, "register_parameter", register_parameter)


def hook_backward(torch: Any, forecast: ScriptForecast) -> None:
    """Look at the graph as a backward call begins, and at gradients as it ends."""
    original = torch.autograd.backward
    see_backward = forecast.guarded(forecast.see_backward)
    see_gradients = forecast.guarded(forecast.see_gradients)

    def backward(*args: Any, **kwargs: Any) -> Any:
        see_backward(args[0] if args else kwargs.get("tensors"))
        result = original(*args, **kwargs)
        see_gradients()
        return result

    put(torch.autograd, "backward", backward)


class ScriptForecast:
    """The forecast of one process.

    Args:
        torch: the module.
        fakes: makes fakes.
        tell: takes the facts, or None, and what is not known.
        measured: runs operators for real, each once; None for formulas.
        script: gathers what levers need to know; None where nobody asks.
    """

    def __init__(
        self,
        torch: Any,
        fakes: Fakes,
        tell: Callable[[Mapping[str, Any] | None, Any], None],
        measured: MeasuredOperators | None = None,
        script: ScriptFacts | None = None,
    ) -> None:
        self.torch, self.fakes, self.tell, self.measured = torch, fakes, tell, measured
        self.script = script
        self.operators = FakeOperators(fakes, measured)
        self.operators.missing = self.see_missing
        self.pid = os.getpid()
        self.known = torch.utils.weak.WeakTensorKeyDictionary()  # fakes by the real parameter
        self.models: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizers: list[Any] = []
        self.mode: Any = None
        self.step: FakeStep | None = None
        self.depth = self.num_rounds = 0
        self.num_stepped = 0  # optimizers that had stepped when the followed step began
        self.num_before = 1  # updates before the one that is followed
        self.is_over = False

    def guarded(self, act: Callable[..., None]) -> Callable[..., None]:
        """Return a function that says so if it fails, and leaves the script alone from then on."""

        def guarded(*args: Any) -> None:
            try:
                act(*args)
            except Exception as error:
                if not self.is_over:
                    self.is_over, self.step = True, None
                    self.tell(None, [f"failed: {type(error).__name__}: {error}"])

        return guarded

    # -- parameters

    def fake_of(self, param: Any) -> Any:
        """Return the fake of a parameter that a module registers; anything else as it is."""
        if self.is_over or os.getpid() != self.pid or type(param) is not self.torch.nn.Parameter:
            return param
        if param.layout != self.torch.strided:
            return param
        if param not in self.known:
            self.known[param] = self.fakes.of(param)
            self.fakes.forget_real()
        return self.known[param]

    # -- moments of a step

    def join(self) -> None:
        """See operators from now on: the script is a rank, and DDP makes its buckets early."""
        self.num_before = PATIENT_STEPS
        if self.mode is None and not self.is_over and os.getpid() == self.pid:
            self._see_operators()

    def refuse(self, word: str) -> None:
        """Say that there will be no forecast, and why."""
        if not self.is_over:
            self.is_over = True
            self.tell(None, [word])

    def _see_operators(self) -> None:
        self.mode = make_mode(self.torch, self.operators, lambda: self.step)
        self.mode.__enter__()

    def see_call(self, module: Any, args: Any) -> None:
        """Note a model called with gradients; from the first call on, operators are seen."""
        if self.is_over or os.getpid() != self.pid:
            return
        if self.mode is None and next(iter(module.parameters()), None) is not None:
            self._see_operators()
        if not self.torch.is_grad_enabled():
            return
        self.depth += 1
        if self.depth > 1 or next(iter(module.parameters()), None) is None:
            return
        self.models.add(module)
        if self.step is not None:
            self.step.see_next(args)

    def see_result(self, module: Any, args: Any, result: Any) -> None:
        """Note what the outermost model returned."""
        if self.is_over or not self.torch.is_grad_enabled():
            return
        self.depth = max(0, self.depth - 1)
        if not self.depth and self.step is not None and result is not None:
            self.step.see_result(result)

    def see_backward(self, roots: Any) -> None:
        """Note what the graph keeps as a backward call begins."""
        self.depth = 0  # a call that was stopped by an exception has not counted down
        if self.step is None or roots is None:
            return
        roots = roots if isinstance(roots, (list, tuple)) else [roots]
        self.step.see_backward(roots, list(self.models), self.optimizers)

    def see_gradients(self) -> None:
        """Note the gradients that a backward call left."""
        if self.step is not None:
            self.step.see_gradients(list(self.models), self.optimizers)

    def see_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Begin to follow after the first update, and end once all optimizers' states are in."""
        if self.is_over or os.getpid() != self.pid:
            return
        if not any(one is optimizer for one in self.optimizers):
            self.optimizers.append(optimizer)
        if optimizer is not self.optimizers[0] or self.mode is None:
            return
        self.num_rounds += 1
        if self.num_rounds < self.num_before:
            return
        was_whole = self.step is not None and len(self.optimizers) == self.num_stepped
        if was_whole or (self.step is not None and self.num_rounds > MAX_ROUNDS):
            self._end()
        else:
            self._begin()

    def see_missing(self, name: str) -> None:
        """Say that there will be no forecast: an operator has no fake kernel."""
        if not self.is_over:
            self.is_over = True
            self.tell(None, self.operators.unknown)

    def _begin(self) -> None:
        """Follow the step that begins here."""
        self.step = None
        self.operators.forget()
        self.num_stepped = len(self.optimizers)
        models = list(self.models)
        weights = [one for model in models for one in model.parameters()]
        step = FakeStep(self.torch, device_of(weights), self.measured, see=self._see_operator)
        exchanged = self.operators.exchanged
        step.begin(models, self.optimizers, takes_others=True, exchanged=exchanged)
        self.operators.resizing = step.see_resize
        self.step = step

    def _see_operator(self, func: Any) -> None:
        """Show an operator of a model's call to whoever gathers facts of the script."""
        if self.script is not None and self.depth:
            self.script.see_operator(func)

    def _end(self) -> None:
        step, self.step, self.is_over = self.step, None, True
        facts = None if step is None else step.facts(list(self.models), self.optimizers)
        if facts is not None:
            facts["process_bytes"] = process_bytes()
        if facts is not None and self.script is not None:
            facts["script"] = self.script.describe(self.models, self.optimizers)
        unknown = list(self.operators.unknown)
        if facts is None:
            unknown.append("nothing_followed")
        self.tell(facts, unknown)
