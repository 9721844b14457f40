"""Finds where a script turns debug switches on, as far as its text shows.

In: a parsed file. Out: the code of a switch and its line. The guest says whether the switch was on
while the training ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CALLS = {
    "set_detect_anomaly": "anomaly_mode",
    "detect_anomaly": "anomaly_mode",
    "use_deterministic_algorithms": "deterministic",
    "set_deterministic_debug_mode": "deterministic",
    "emit_nvtx": "profiler",
    "emit_itt": "profiler",
    "settrace": "tracing",
    "setprofile": "tracing",
}
_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": "launch_blocking",
    "TORCH_DISTRIBUTED_DEBUG": "distributed_debug",
    "PYTHONMALLOC": "malloc_debug",
    "MALLOC_CHECK_": "malloc_debug",
    "MALLOC_PERTURB_": "malloc_debug",
}
_PROFILERS = (
    *("torch.profiler.profile", "torch.autograd.profiler.profile", "autograd.profiler.profile"),
)
_OFF = (False, None, "0", "", "OFF", "default", 0)


def find_switches(tree: ast.Module) -> list[tuple[str, int]]:
    """Return the code and line of each place, in the order of lines."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found |= {(code, node.lineno) for code in _called(node)}
        elif isinstance(node, ast.Assign):
            found |= {(code, node.lineno) for code in _assigned(node)}
    return sorted(found, key=lambda place: (place[1], place[0]))


def _called(call: ast.Call) -> Iterator[str]:
    path = ast.unparse(call.func)
    name = path.rpartition(".")[2]
    if name in _CALLS and not _is_off([*call.args, *(k.value for k in call.keywords)][:1]):
        yield _CALLS[name]
    # A bare `profile` may be anything: `line_profiler` has a decorator of that name.
    if path in ("profile", "profiler.profile") and call.keywords:
        yield "profiler"
    if path in _PROFILERS:
        yield "profiler"
    if path in ("cProfile.Profile", "cProfile.run", "cProfile.runctx"):
        yield "tracing"
    if any(k.arg == "detect_anomaly" and not _is_off([k.value]) for k in call.keywords):
        yield "anomaly_mode"
    if path in ("os.environ.setdefault", "os.putenv", "environ.setdefault", "putenv"):
        yield from _variable(call.args[:1], call.args[1:])
    if path in ("os.environ.update", "environ.update"):
        for keyword in call.keywords:
            yield from _variable([ast.Constant(keyword.arg)], [keyword.value])
        for argument in call.args:
            if isinstance(argument, ast.Dict):
                for key, value in zip(argument.keys, argument.values, strict=True):
                    yield from _variable([key] if key else [], [value])


def _assigned(node: ast.Assign) -> Iterator[str]:
    for target in node.targets:
        path = ast.unparse(target)
        if path.endswith("cudnn.deterministic") and not _is_off([node.value]):
            yield "deterministic"
        if isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("environ"):
            yield from _variable([target.slice], [node.value])


def _variable(names: list[ast.expr], values: list[ast.expr]) -> Iterator[str]:
    name = names[0].value if names and isinstance(names[0], ast.Constant) else None
    if isinstance(name, str) and name in _VARIABLES and not _is_off(values):
        yield _VARIABLES[name]


def _is_off(values: list[ast.expr]) -> bool:
    """Return whether the first value plainly turns it off."""
    return bool(values) and isinstance(values[0], ast.Constant) and values[0].value in _OFF
