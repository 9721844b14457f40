"""Each function of the guest raises once: the training computes what it computes without us.

A fault is put where a function of ours that another one of ours has called begins. What is called
directly from torch or the script holds the user's own call; it and the guards themselves are left
out. In a copy of this process for each function; the fast check takes one part of them.
"""

import ast
import gc
import importlib
import io
import pkgutil
import sys
import types
from functools import cache
from pathlib import Path

import pytest

import steptime.guest
from steptime.levers.tools.forked_copy import do_apart
from steptime.record import files

torch = pytest.importorskip("torch")

from steptime.guest.bootstrap import finish, start  # noqa: E402

importlib.import_module("torch._dynamo")  # once, and not in each copy of this process

ROOMS = ("steptime.guest.", "steptime.record.")
NO_CALLS = {
    "guest.count.completeness:_forget": "a weak reference's callback of two lines",
    "guest.count.completeness:CompletenessProof._is_of_a_call.<locals>.<lambda>": "the same code "
    "as a clock that returns 0",
    "guest.memory.workspaces:Workspaces._begin": "memory of operators is left out without a word",
    "guest.memory.workspaces:Workspaces._begin.<locals>.<genexpr>": "the same",
    "guest.count.counting_mode:is_foreign": "told as operators that could not be counted",
    "guest.count.counting_mode:classes_in.<locals>.<listcomp>": "the same",
    "guest.frameworks.torch.torch_context:TorchContext.follow_step.<locals>.around": "holds the "
    "user's call",
}
GUARDS = ("drop_frame", "drop_hidden", "guarded", "fail", "let_through", "is_from_handler")


class FaultError(BaseException):
    """What no code of ours or of the user's raises."""


def train():
    """What a training computes that goes through most hooks."""
    found = []
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer, compute = torch.optim.SGD(model.parameters(), lr=0.01), torch.nn.MSELoss()
    for _ in range(4):
        for x, y in torch.utils.data.DataLoader(data, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            loss = compute(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            found.append(loss.item())
        model.eval()
        with torch.no_grad():
            batches = torch.utils.data.DataLoader(data, batch_size=32)
            found.append(sum(compute(model(x), y).item() for x, y in batches))
        model.train()
        torch.save(model.state_dict(), io.BytesIO())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number in range(5):
        loss = model[0](torch.ones(2, 4)).sum() * (1e40 if number == 3 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        found.append(scaler.get_scale())
    layer = torch.nn.Linear(4, 1)
    search = torch.optim.LBFGS(layer.parameters(), max_iter=5)

    def close():
        search.zero_grad()
        loss = compute(layer(torch.ones(3, 4)), torch.zeros(3, 1))
        loss.backward()
        return loss

    found += [search.step(close).item() for _ in range(3)]
    weight = torch.ones(3, requires_grad=True)
    (slope,) = torch.autograd.grad((weight**2).sum(), weight)
    found += slope.tolist()
    try:
        model(torch.ones(2, 5))
    except RuntimeError as error:
        found.append(str(error)[:30])
    return found


def is_guard(function):
    """Whether a function catches all that its own calls raise, or holds the user's call."""
    body = [one for one in function.body if not isinstance(getattr(one, "value", 0), ast.Constant)]
    inside = list(ast.walk(function))
    caught = [h for one in inside if isinstance(one, ast.Try) for h in one.handlers]
    catches = any(getattr(h.type, "id", "") == "BaseException" for h in caught)
    called = {getattr(one.func, "id", "") for one in inside if isinstance(one, ast.Call)}
    is_users = bool(called & {"original", "function", "call"})
    return function.name in GUARDS or (catches and (is_users or len(body) <= 2))


def functions_in(module):
    """The code of each function of a module with its name, and whether it is a guard."""
    text = Path(module.__file__).read_text(encoding="utf-8")
    place = module.__name__.removeprefix("steptime.")

    def guards_in(node, prefix):
        for one in ast.iter_child_nodes(node):
            name = prefix + (getattr(one, "name", None) or "")
            if isinstance(one, ast.FunctionDef):
                if is_guard(one):
                    yield name
                yield from guards_in(one, f"{name}.<locals>.")
            else:
                yield from guards_in(one, f"{name}." if isinstance(one, ast.ClassDef) else prefix)

    guards = set(guards_in(ast.parse(text), ""))
    waiting = [compile(text, module.__file__, "exec")]
    while waiting:
        inner = [one for one in waiting.pop().co_consts if isinstance(one, types.CodeType)]
        waiting += inner
        for code in inner:
            yield code, f"{place}:{code.co_qualname}", code.co_qualname in guards


@cache
def known_functions():
    """By what stays of its code under another file name: the name, and whether it is a guard."""
    for one in pkgutil.walk_packages(steptime.guest.__path__, "steptime.guest."):
        if "sitecustomize" not in one.name:
            importlib.import_module(one.name)
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(ROOMS) and getattr(module, "__file__", None):
            for code, place, is_one in functions_in(module):
                found.setdefault(sign(code), (place, is_one))
    return found


def sign(code):
    return code.co_name, code.co_code, code.co_names, code.co_varnames


def look_up(code, memory):
    """The name of a function of ours, and whether it is a guard; None for any other."""
    if id(code) not in memory:  # which also keeps the code
        memory[id(code)] = code, known_functions().get(sign(code))
    return memory[id(code)][1]


def run(folder, target=None):
    """A training under the guest; the first call of `target` from a function of ours fails."""
    folder.mkdir(exist_ok=True)
    (folder / files.PROCESSES).touch()
    known_functions()
    met, raised, memory = set(), [], {}

    def watch(frame, event, _):
        found = look_up(frame.f_code, memory) if event == "call" else None
        if found is None or found[1] or frame.f_back is None:
            return
        if look_up(frame.f_back.f_code, memory) is None:
            return
        name = found[0]
        met.add(name)
        if name == target and not raised:
            raised.append(name)
            frame = None  # a signal handler has the frame that it interrupts, and this is none
            raise FaultError(name)

    def act() -> dict:
        gc.freeze()
        torch.set_num_threads(1)
        if target == "bare":
            return {"found": train()}
        context = None
        sys.setprofile(watch)
        try:
            try:
                context = start(torch, str(folder), {})
            except FaultError:
                return {"begun": False}  # what loads the guest catches this
            found = train()
            finish(context, lambda: None)
        except FaultError as error:
            return {"escaped": str(error)}
        finally:
            sys.setprofile(None)
        said = context.recorder.failures
        return {"found": found, "failures": said, "met": sorted(met), "raised": raised}

    return do_apart(act, limit_s=120)


PARTS = 12


FIRST = pytest.param(0, marks=pytest.mark.core)


@pytest.mark.slow("a copy of this process for each function")
@pytest.mark.parametrize("part", [FIRST, *range(1, PARTS)])
def test_no_fault_of_ours_reaches_the_training(part, tmp_path):
    bare, whole = run(tmp_path, "bare"), run(tmp_path / "whole")
    assert whole["found"] == bare["found"]
    assert whole["failures"] == {}
    names = [name for name in whole["met"] if name not in NO_CALLS][part::PARTS]
    assert len(names) > 30
    wrong = {}
    for name in names:
        seen = run(tmp_path / "one", name)
        if seen.get("begun") is False or seen.get("raised") == []:
            continue
        if seen.get("found") != bare["found"] or not seen["failures"]:
            wrong[name] = {key: seen.get(key) for key in ("error", "escaped", "failures")}
    assert not wrong, wrong
