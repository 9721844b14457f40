"""Steps of environments and generation: what the classes of a few libraries do in a rollout.

Classes are found by their bases, whatever the library or the script derives from them: a base
reports each class that is derived from it. A method is replaced on its class, as torch's are. The
script may send such a class to other processes by value (cloudpickle does so with classes of the
main module), so the replacement holds the original and a name, and looks for this module each time.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...record.buckets import NUM_BUCKETS, ROLLOUT
from ..frameworks.torch.torch_context import TorchContext
from ..timeline.acts import ENTER_GENERATION, ENTER_ROLLOUT, LEAVE_ROLLOUT
from ..timeline.journal import Journal
from .patching import NOT_OURS, drop_frame, hidden, put

ENVIRONMENTS = {
    "gymnasium.core": ("Env",),
    "gymnasium.vector.vector_env": ("VectorEnv",),
    "gym.core": ("Env",),
    "gym.vector.vector_env": ("VectorEnv",),
    "dm_env._environment": ("Environment",),
    "pettingzoo.utils.env": ("AECEnv", "ParallelEnv"),
    "stable_baselines3.common.vec_env.base_vec_env": ("VecEnv",),
}
"""The bases of environments, by the module that defines them."""

GENERATORS = {
    "transformers.generation.utils": ("GenerationMixin",),
    "vllm.entrypoints.llm": ("LLM",),
}
"""The classes with a method `generate`, by the module that defines them."""

STEPS = ("step", "reset", "step_async", "step_wait")
_context: list[TorchContext] = []  # the one that observes this process


def hook_libraries(context: TorchContext, targets: dict[str, Callable[[Any], None]]) -> None:
    """Hook the libraries that are here, and the others once they are imported."""
    _context[:] = [context]
    context.undo.append(_context.clear)
    for table, hook in (ENVIRONMENTS, hook_environments), (GENERATORS, hook_generator):
        for name, classes in table.items():
            act = functools.partial(context.guarded, "environments", _hook_all, hook, classes)
            module = sys.modules.get(name)
            if module is None:
                targets.setdefault(name, act)
            else:
                act(module)


def _hook_all(hook: Callable[[Any], None], classes: tuple[str, ...], module: Any) -> None:
    for name in classes:
        owner = getattr(module, name, None)
        if isinstance(owner, type):
            hook(owner)


def hook_environments(base: Any) -> None:
    """Time the steps of all classes derived from `base`: those that are here, and later ones."""
    known = [base]
    for one in known:
        time_steps(one)
        known += [derived for derived in one.__subclasses__() if derived not in known]
    inherited = base.__dict__.get("__init_subclass__")

    @hidden
    def __init_subclass__(cls: Any, **kwargs: Any) -> None:
        try:
            if inherited is None:
                super(base, cls).__init_subclass__(**kwargs)
            else:
                inherited.__get__(None, cls)(**kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        for context in _context:
            context.guarded("environments", time_steps, cls)

    as_method: Any = classmethod
    _set(base, "__init_subclass__", as_method(__init_subclass__))


def time_steps(owner: Any) -> None:
    """Time the steps that a class itself defines."""
    for name in STEPS:
        method = owner.__dict__.get(name)
        if type(method) is FunctionType and method.__code__.co_filename != NOT_OURS:
            _set(owner, name, passing_to("run_step", method))


def hook_generator(owner: Any) -> None:
    """Time a class's `generate`."""
    method = owner.__dict__.get("generate")
    if type(method) is FunctionType:
        _set(owner, "generate", passing_to("run_generate", method))


def _set(owner: Any, name: str, ours: Any) -> None:
    """Replace a method; only a guest that leaves again remembers the class, which may be many."""
    if _context and _context[0].is_late:
        put(owner, name, ours)
    else:
        setattr(owner, name, ours)


def passing_to(function: str, original: Any, *, module: str = __name__) -> Any:
    """Return a method that lets a function of this module call the original.

    Where this module is not loaded, as in another process, it calls the original itself.
    """
    file = NOT_OURS

    @hidden
    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            ours = sys.modules.get(module)
            if ours is None:
                return original(*args, **kwargs)
            return getattr(ours, function)(original, args, kwargs)
        except BaseException as error:
            link = error.__traceback__
            while link is not None and link.tb_frame.f_code.co_filename == file:
                link = link.tb_next
            error.__traceback__ = link
            raise

    return functools.update_wrapper(method, original)


@hidden
def run_step(original: Any, args: Any, kwargs: Any) -> Any:
    """Run a step of an environment; only the outermost of several counts."""
    if not _context:
        return original(*args, **kwargs)  # the guest has left
    context = _context[0]
    journal = context.journal
    if 0 < journal.top < NUM_BUCKETS or context.torch.compiler.is_dynamo_compiling():
        return original(*args, **kwargs)
    journal.acting.begin(journal.num_updates)
    journal.acting.see_environment(has_graph=any(type(one) is not int for one in journal.shapes))
    return _timed(context, journal, ENTER_ROLLOUT, original, args, kwargs)


@hidden
def run_generate(original: Any, args: Any, kwargs: Any) -> Any:
    """Run a generation; one by a model in eval mode is left to the hook of calls."""
    if not _context:
        return original(*args, **kwargs)  # the guest has left
    context = _context[0]
    journal = context.journal
    is_evaluating = not (args and getattr(args[0], "training", True))
    if is_evaluating or 0 < journal.top < NUM_BUCKETS:
        return original(*args, **kwargs)
    context.guarded("call", _tell_trial, context)
    context.see_plain_call(journal, args[1:], kwargs)
    return _timed(context, journal, ENTER_GENERATION, original, args, kwargs)


def _tell_trial(context: TorchContext) -> None:
    if context.trial is not None:
        context.trial.see_call_without_gradients(is_evaluation=False)


@hidden
def _timed(
    context: TorchContext, journal: Journal, act: int, original: Any, args: Any, kwargs: Any
) -> Any:
    outer = journal.top
    if journal.spans is not None:
        context.guarded("environments", journal.spans.walk, ROLLOUT, sys._getframe(1))
    context.guarded("environments", journal.note, act, ROLLOUT)
    try:
        return original(*args, **kwargs)
    finally:
        context.guarded("environments", journal.note, LEAVE_ROLLOUT, outer)
