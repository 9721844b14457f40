"""Edits of calls of torch's own that a script makes by name: what a lever turns off, or sets.

They are found by the name of torch's function in the files of the proof. A call that is written in
another way is not changed: its lines are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from steptime.patch.arguments import set_arguments
from steptime.patch.changes import Beginning, CallChange, Change, Replace
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, take
from steptime.patch.ground import Ground
from steptime.patch.source_file import SourceFile, last_word
from steptime.patch.values import CannotPlaceError

_GARBAGE = '''\
def {name}(optimizer, args, kwargs, count=itertools.count(1)):
    """Collect garbage at every {every}th update, and not whenever Python decides."""
    number = next(count)
    if number == 3:
        gc.collect()
        gc.freeze()
        gc.disable()
    elif number > 3 and number % {every} == 0:
        gc.collect()
'''


def take_out_compile(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`model` in place of `torch.compile(model)`."""
    take(settings)
    found: list[Placed | NotPlaced] = []
    for source in ground.sources():
        for call in source.calls():
            if not _is_compile(source, call):
                continue
            where = f"{source.name}:{source.line_of(call)}"
            if not call.args or call.args[0].star or call.args[0].keyword is not None:
                found.append(NotPlaced(f"{where} does not name its model first.", where))
                continue
            change = Replace(source=source, node=call, text=source.code(call.args[0].value))
            found.append(Placed(where, (change,)))
    return _some(found, "No call of torch.compile(model) was found")


def compile_dynamic(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`torch.compile(model, dynamic=True)`."""
    take(settings)

    def act(call: cst.Call) -> cst.Call:
        return set_arguments(call, {"dynamic": "True"})

    return _at_calls(ground, _is_compile, act, what="No call of torch.compile(model) was found")


def set_exchange(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """The arguments of DistributedDataParallel."""
    take(settings, "gradient_as_bucket_view", "static_graph", "bucket_cap_mb")
    values = {name: repr(value) for name, value in settings.items()}

    def act(call: cst.Call) -> cst.Call:
        return set_arguments(call, values)

    def is_one(source: SourceFile, call: cst.Call) -> bool:
        return last_word(call.func) in ("DistributedDataParallel", "DDP")

    return _at_calls(ground, is_one, act, what="No call of DistributedDataParallel was found")


def collect_at_updates(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """A function that collects garbage, before each update."""
    take(settings, "every_updates")
    source = ground.main_source()
    name = source.fresh_name("collect_garbage")
    text = _GARBAGE.format(name=name, every=settings["every_updates"])
    hook = "register_optimizer_step_pre_hook"
    changes = (
        Beginning(source=source, text="import gc", num_blank=0),
        Beginning(source=source, text="import itertools", num_blank=0),
        Beginning(source=source, text=f"from torch.optim.optimizer import {hook}", num_blank=0),
        Beginning(source=source, text=text, num_blank=2),
        Beginning(source=source, text=f"{hook}({name})", num_blank=2),
    )
    return [Placed(source.name, changes)]


# -- what they share


def _at_calls(
    ground: Ground,
    is_one: Callable[[SourceFile, cst.Call], bool],
    act: Callable[[cst.Call], cst.Call],
    *,
    what: str,
) -> Sequence[Placed | NotPlaced]:
    """Change each such call in the files of the proof."""
    found: list[Placed | NotPlaced] = []
    for source in ground.sources():
        for call in source.calls():
            if is_one(source, call):
                where = f"{source.name}:{source.line_of(call)}"
                changes: tuple[Change, ...] = (CallChange(source=source, call=call, act=act),)
                found.append(Placed(where, changes))
    return _some(found, what)


def _some(found: list[Placed | NotPlaced], what: str) -> list[Placed | NotPlaced]:
    if not found:
        raise CannotPlaceError(f"{what} in the files of the proof.")
    return found


def _is_compile(source: SourceFile, call: cst.Call) -> bool:
    return source.code(call.func) == "torch.compile"
