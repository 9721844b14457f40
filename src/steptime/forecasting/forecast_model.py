"""Says what a training step of a model holds at its peak, before anything has run.

In: a model, a batch and an optimizer, on any device. Out: a `MemoryForecast`. Two steps are made on
fakes (`fake_loop.py`), and the second one is followed, since optimizer states are there by then.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from steptime.counting.loss_outputs import Loss
from steptime.forecasting.config_model import model_of_config
from steptime.forecasting.fake_loop import FakeLoop, copy_as_fakes, with_fakes
from steptime.guest.forecast.fake_mode import Fakes, NoFakesError
from steptime.guest.forecast.fake_operators import FakeOperators, MissingKernelError
from steptime.guest.forecast.fake_step import FakeStep, device_of, make_mode
from steptime.guest.forecast.measured_operators import MeasuredOperators
from steptime.plan.values import MemoryForecast, peak_range


def memory(
    model: Any,
    batch: Any,
    optimizer: Any,
    *,
    loss: Loss = None,
    autocast: Any = None,
    num_micro_batches: int = 1,
    set_to_none: bool = True,
    measure: bool | None = None,
) -> MemoryForecast:
    """The most memory that a training step of `model` holds at once, before it has run.

    A step is made twice on tensors that have shapes and no memory; nothing of the caller's changes.
    Each step drops gradients, goes forward and backward, and updates; the loss and what the model
    returned are held until it ends.

        steptime.plan.memory(model, (images,), torch.optim.AdamW, loss=lambda out: ...)
        steptime.plan.memory("config.json", {"input_ids": ids, "labels": ids}, torch.optim.AdamW)

    Args:
        model: a module, real or on the meta device; or the path of a Hugging Face `config.json`,
            whose causal language model is made without weights (this needs transformers).
        batch: what it is called with: a tensor, a tuple of arguments, or a mapping of named ones.
            Real tensors are read where the model reads them; those on the meta device have shapes.
        optimizer: one of the model's, or a function of parameters that makes one.
        loss: what goes backward: a function of the output, or its index, key or attribute; as for
            `steptime.count`.
        autocast: None, `bf16`, `fp16`, or a dtype of torch.
        num_micro_batches: calls with this batch between two updates.
        set_to_none: whether gradients are dropped rather than filled with zeros.
        measure: run each different operator once, alone, on zeros, instead of using formulas for
            what it takes for itself; None does so where the formulas leave a wide range, or an
            operator has no fake kernel.

    Returns:
        The forecast; its `peak` is None where an operator has no fake kernel, or this torch no
        fake tensors, and `unknown` says which.

    Raises:
        ImportError: torch is not installed.
        UsageError: the model cannot be copied, has nothing to train, or its loss is not known.
    """
    import torch

    again = partial(
        memory, model, batch, optimizer, loss=loss, autocast=autocast,
        num_micro_batches=num_micro_batches, set_to_none=set_to_none,
    )  # fmt: skip
    if isinstance(model, (str, Path)):
        model = model_of_config(torch, Path(model))
    try:
        fakes = Fakes(torch)
    except NoFakesError as error:
        return to_forecast(None, [f"no_fake_tensors: {error}"], how="none")
    copied, stepper = copy_as_fakes(torch, fakes, model, optimizer)
    measured = MeasuredOperators(fakes) if measure else None
    operators = FakeOperators(fakes, measured)
    loop = FakeLoop(
        torch=torch,
        model=copied,
        optimizer=stepper,
        batch=with_fakes(torch, fakes, batch),
        loss=loss,
        autocast=autocast,
        num_micro_batches=num_micro_batches,
        set_to_none=set_to_none,
    )
    facts = follow(torch, loop, operators, measured)
    found = to_forecast(facts, operators.unknown, how="measured" if measure else "fake")
    return again(measure=True) if measure is None and found.is_unsure else found


def follow(
    torch: Any,
    loop: FakeLoop,
    operators: FakeOperators,
    measured: MeasuredOperators | None,
    num_before: int = 1,
) -> dict[str, Any] | None:
    """Make steps of a loop; return what the last one held, None where it cannot be known.

    Args:
        torch: the module.
        loop: makes steps.
        operators: run them.
        measured: has run some; None for formulas.
        num_before: steps that come first: optimizers and DDP make their own tensors in them.
    """
    followed: list[FakeStep] = []
    held = [loop.model], [loop.optimizer]
    try:
        with (
            warnings.catch_warnings(),
            make_mode(torch, operators, lambda: followed[0] if followed else None),
        ):
            # Where a fake is written into a real tensor, torch reads what it would not otherwise.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")
            for _ in range(num_before):
                loop.step(None)
            operators.forget()
            step = FakeStep(torch, device_of(loop.model.parameters()), measured)
            step.begin(*held, batch=loop.batch, exchanged=operators.exchanged)
            operators.resizing = step.see_resize
            followed.append(step)
            loop.step(step)
            followed.clear()
            return step.facts(*held)
    except MissingKernelError:
        return None


def to_forecast(facts: Mapping[str, Any] | None, unknown: Any, *, how: str) -> MemoryForecast:
    """Return the value that facts of a step are; without facts, one without a peak."""
    if facts is None:
        return MemoryForecast(peak=None, by_category={}, unknown=tuple(unknown), how="none")
    return MemoryForecast(
        peak=peak_range(facts["peak"], facts["by_category"], unknown),
        by_category=dict(facts["by_category"]),
        unknown=tuple(unknown),
        how=how,
        phase=facts["phase"],
        operator=facts["operator"],
    )
