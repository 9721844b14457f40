"""The memory anatomy of planted models against closed forms, a debugger and the allocator's events.

    python benchmarks/fit/memory_anatomy.py [--models 12] [--json FILE]

Twelve models, each trained by SGD, SGD with momentum, AdamW, an Adam with 8-bit states, Adafactor,
and AdamW on bf16 weights. `steptime run` watches one command that forks a child a training; what it
says of weights, gradients and states is compared with closed forms (bytes that differ), the saved
activations with the storages that hooks of the script's own see saved, and the peak of the step
with the sum of all events of torch's CPU allocator (torch.profiler, from before the model is
made). Beside it stands by how much resident memory rose at most over a training that nobody
watches: pages that were free before are not in it, code that torch loads first is.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
import torch
from _conditions import conditions
from torch import nn

from counted_models import PLANTED

MODELS = (
    *("linear_stack", "convnet", "resnet", "gpt", "gqa", "cross_attention", "lstm", "gru"),
    *("embedding_bag", "mixture_of_experts", "gpt_checkpointed", "lora"),
)
NUM_UPDATES = 16
WRITTEN_WITHIN_S = 0.25  # a record is written at the first act after 0.2 s, or at a clean end
LOOKED_AT = 12
BLOCK = 256


class Adam8bit(torch.optim.Optimizer):
    """Adam whose two moments are bytes, with a scale for each block of 256 elements."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group["lr"])

    def _update(self, p: nn.Parameter, lr: float) -> None:
        state = self.state[p]
        num_blocks = math.ceil(p.numel() / BLOCK)
        if not state:
            for name in ("first", "second"):
                state[name] = torch.zeros(p.numel(), dtype=torch.int8, device=p.device)
                state[f"{name}_scale"] = torch.zeros(num_blocks, device=p.device)
            state["step"] = torch.tensor(0.0)
        state["step"] += 1
        gradient = p.grad.reshape(-1).float()
        first = (
            read_blocks(state["first"], state["first_scale"]).mul_(0.9).add_(gradient, alpha=0.1)
        )
        second = read_blocks(state["second"], state["second_scale"]).mul_(0.999)
        second.addcmul_(gradient, gradient, value=0.001)
        write_blocks(first, state["first"], state["first_scale"])
        write_blocks(second, state["second"], state["second_scale"])
        p.sub_((first / (second.sqrt() + 1e-6)).view_as(p).to(p.dtype), alpha=lr)


def read_blocks(stored: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return stored.float() * scale.repeat_interleave(BLOCK)[: stored.numel()]


def write_blocks(values: torch.Tensor, stored: torch.Tensor, scale: torch.Tensor) -> None:
    padded = nn.functional.pad(values, (0, scale.numel() * BLOCK - values.numel()))
    blocks = padded.view(-1, BLOCK)
    scale.copy_(blocks.abs().amax(1) / 127)
    inverse = torch.where(scale > 0, 1 / scale, scale)
    stored.copy_((blocks * inverse[:, None]).round().view(-1)[: stored.numel()])


def adafactor_bytes(p: torch.Tensor) -> int:
    """A mean for each row and column of a matrix; all of a vector; a step."""
    if p.dim() < 2:
        return p.numel() * p.element_size() + 4
    rows, columns = p.numel() // p.shape[-1], p.numel() // p.shape[-2]
    return (rows + columns) * p.element_size() + 4


MAKE: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], Callable[[torch.Tensor], int]]] = {
    "sgd": (lambda ps: torch.optim.SGD(ps, lr=1e-3), lambda p: 0),
    "momentum": (
        lambda ps: torch.optim.SGD(ps, lr=1e-3, momentum=0.9),
        lambda p: p.numel() * p.element_size(),
    ),
    "adamw": (
        lambda ps: torch.optim.AdamW(ps, lr=1e-3),
        lambda p: 2 * p.numel() * p.element_size() + 4,
    ),
    "adam8bit": (Adam8bit, lambda p: 2 * p.numel() + 2 * 4 * math.ceil(p.numel() / BLOCK) + 4),
    "adafactor": (lambda ps: torch.optim.Adafactor(ps, lr=1e-3), adafactor_bytes),
    "bf16 adamw": (
        lambda ps: torch.optim.AdamW(ps, lr=1e-3),
        lambda p: 2 * p.numel() * p.element_size() + 4,
    ),
}
"""How an optimizer is made, and the bytes of its states of one trained parameter."""


class Whole(nn.Module):
    """A function that calls models, as a model."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def make(name: str, how: str) -> tuple[nn.Module, tuple[Any, ...], torch.optim.Optimizer]:
    torch.manual_seed(0)
    planted = PLANTED[name]()
    model, inputs = planted.model, planted.inputs
    if not isinstance(model, nn.Module):
        model = Whole(model)
    if how.startswith("bf16"):
        model = model.to(torch.bfloat16)
        inputs = tuple(halved(one) for one in inputs)
    return model, inputs, MAKE[how][0]([p for p in model.parameters() if p.requires_grad])


def halved(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().to(torch.bfloat16).requires_grad_(value.requires_grad)


def update(model: nn.Module, inputs: tuple[Any, ...], optimizer: torch.optim.Optimizer) -> None:
    """One step up to its end, gradients dropped at its beginning."""
    optimizer.zero_grad()
    result = model(*inputs)
    loss = result if result.ndim == 0 else result.square().mean()
    loss.backward()
    optimizer.step()


# -- children


def train(name: str, how: str) -> dict[str, Any]:
    """What closed forms say; whoever watches says what it sees."""
    model, inputs, optimizer = make(name, how)
    for _ in range(NUM_UPDATES):
        update(model, inputs, optimizer)
    time.sleep(WRITTEN_WITHIN_S)  # the child then leaves at once
    update(model, inputs, optimizer)
    trained = [p for p in model.parameters() if p.grad is not None]
    parameters = list(model.parameters())
    return {
        "weights": sum(p.numel() * p.element_size() for p in parameters),
        "gradients": sum(p.numel() * p.element_size() for p in trained),
        "optimizer": sum(map(MAKE[how][1], trained)),
    }


def profile(name: str, how: str) -> dict[str, Any]:
    """The most that torch's CPU allocator had given out in the step that is looked at."""
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        model, inputs, optimizer = make(name, how)
        for number in range(LOOKED_AT + 1):
            with record_function("looked_at" if number == LOOKED_AT else "other"):
                update(model, inputs, optimizer)
    events = prof.profiler.kineto_results.events()
    step = next(e for e in events if e.name() == "looked_at")
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        if step.start_ns() <= event.start_ns() <= step.end_ns():
            peak = max(peak, held)
    return {"peak": peak, "saved": count_saved(model, inputs)}


def resident(name: str, how: str) -> dict[str, Any]:
    """By how much resident memory rose at most, in bytes; None where the kernel does not say."""
    before = status_bytes("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    model, inputs, optimizer = make(name, how)
    for _ in range(LOOKED_AT + 1):
        update(model, inputs, optimizer)
    highest = status_bytes("VmHWM")
    return {"rise": None if None in (before, highest) else highest - before}


def status_bytes(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), None)


def count_saved(model: nn.Module, inputs: tuple[Any, ...]) -> int:
    """Bytes of the storages that the forward leaves for the backward, weights and result left out.

    Those that hooks see saved, and others that Python holds since: a checkpoint's random state.
    """
    seen: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        seen[storage._cdata] = weakref.ref(storage)
        return tensor

    before = {storage._cdata for storage in alive_storages()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = model(*inputs)
        loss = result if result.ndim == 0 else result.square().mean()
    found = {key: storage for key, ref in seen.items() if (storage := ref()) is not None}
    given = {one.untyped_storage()._cdata for one in (result, loss)}
    for storage in alive_storages():
        if storage._cdata not in before | given:
            found[storage._cdata] = storage
    own = {p.untyped_storage()._cdata for p in [*model.parameters(), *model.buffers()]}
    return sum(storage.nbytes() for key, storage in found.items() if key not in own)


def alive_storages() -> list[Any]:
    """Of all tensors that Python knows."""
    gc.collect()
    return [o.untyped_storage() for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]


def in_child(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a forked child returns, with its process id."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = act()
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = json.loads(pipe.read() or b"{}")
    os.waitpid(pid, 0)
    return {"pid": pid, **found}


def run_children(models: list[str], act: Callable[[str, str], dict[str, Any]]) -> dict[str, Any]:
    pairs = [(name, how) for name in models for how in MAKE]
    return {f"{name}|{how}": in_child(partial(act, name, how)) for name, how in pairs}


# -- comparing


def watch(models: list[str]) -> tuple[dict[str, Any], Any]:
    """Closed forms by training, and what `steptime run` read of all processes."""
    from steptime.measure.fold.run_records import RecordReader

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "steptime", "run", "--store", f"{folder}/store", "--"]
        command += [sys.executable, __file__, "--child", f"{folder}/forms.json", *models]
        subprocess.run(command, check=True, cwd=folder, stderr=subprocess.DEVNULL)
        (command_file,) = Path(folder, "store").rglob("command.json")
        reader = RecordReader(command_file.parent)  # each child is a training of its own
        numbers = [one.number for one in reader.trainings]
        memory = [line for number in numbers for line in reader.read(number).memory]
        return json.loads(Path(folder, "forms.json").read_text()), memory


def compare(models: list[str]) -> list[dict[str, Any]]:
    from steptime.measure.memory.memory_anatomy import find_anatomy

    forms, lines = watch(models)
    truths, rises = run_children(models, profile), run_children(models, resident)
    rows = []
    for key, form in forms.items():
        name, _, how = key.partition("|")
        told = [line for line in lines if line.pid == form["pid"]]
        found, truth = find_anatomy(told, (), worker_bytes=None), truths[key]
        row: dict[str, Any] = {"model": name, "trained_by": how}
        if found is None or "failed" in form or "failed" in truth:
            rows.append(row | {"failed": form.get("failed") or truth.get("failed") or "not told"})
            continue
        for part in ("weights", "gradients", "optimizer"):
            row[part] = (found.part(part).bytes or 0) - form[part]
        saved = found.bytes_of("activations", "logits")
        row |= {"bytes_per_parameter": found.bytes_per_parameter, "saved": truth["saved"]}
        row["saved_error"] = saved / truth["saved"] - 1
        row["peak"], row["resident_rise"] = truth["peak"], rises[key].get("rise")
        row["missing"] = found.timeline_missing
        if found.timeline is not None:
            row["peak_error"] = found.timeline.peak.total / truth["peak"] - 1
            row["peak_phase"] = found.timeline.peak.phase
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{'model':20}{'optimizer':12}{'states':>8}{'saved':>10}{'error':>9}{'peak':>12}"
        f"{'resident':>12}{'error':>9}"
    ]
    for row in rows:
        head = f"{row['model']:20}{row['trained_by']:12}"
        if "failed" in row:
            lines.append(head + row["failed"][:60])
            continue
        differ = sum(abs(row[part]) for part in ("weights", "gradients", "optimizer"))
        states = "exact" if not differ else f"{differ:+d} B"
        peak = (
            f"{row['peak_error']:+9.2%} {row['peak_phase']}"
            if "peak_error" in row
            else row["missing"]
        )
        lines.append(
            f"{head}{states:>8}{row['saved']:>10}{row['saved_error']:>+9.2%}{row['peak']:>12}"
            f"{row['resident_rise'] or '-':>12}{peak}"
        )
    return "\n".join(lines)


def summarize(rows: list[dict[str, Any]]) -> str:
    whole = [row for row in rows if "failed" not in row]
    exact = [r for r in whole if not any(r[p] for p in ("weights", "gradients", "optimizer"))]
    saved = [abs(row["saved_error"]) for row in whole]
    peaks = [abs(row["peak_error"]) for row in whole if "peak_error" in row]
    return "\n".join(
        (
            f"weights, gradients and states exact: {len(exact)} of {len(rows)}",
            f"saved activations within 1 %: {sum(e <= 0.01 for e in saved)} of {len(saved)}, "
            f"largest error {max(saved):.2%}",
            f"peak of the step within 5 %: {sum(e <= 0.05 for e in peaks)} of {len(peaks)} "
            f"followed, median error {statistics.median(peaks):.2%}, largest {max(peaks):.2%}",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=len(MODELS), help="so many of them")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.child:
        path, *models = options.child
        Path(path).write_text(json.dumps(run_children(models, train)), encoding="utf-8")
        return 0
    print(f"Python {platform.python_version()}, torch {torch.__version__}, CPU")
    rows = compare(list(MODELS[: options.models]))
    print(show(rows))
    print(summarize(rows))
    if options.json is not None:
        document = {"conditions": conditions(), "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
