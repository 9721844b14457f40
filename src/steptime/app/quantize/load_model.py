"""Loads a network, its weights and its arrays from the user's files; nothing is unpickled."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from steptime.app.run.attempt import blamed
from steptime.app.user_function import function_named
from steptime.errors import DataError, MissingExtraError, NotFoundError, UsageError


def load_model(source: str, weights: Path | None) -> Any:
    """Return a network in evaluation mode.

    Args:
        source: `FILE.py:FUNCTION` of a function without arguments that returns the network.
        weights: a file of tensors by name: safetensors, or of `torch.save`.

    Raises:
        NotFoundError: a file is not there.
        UsageError: there is no such function, it or its file raises, it returns no network, or the
            weights do not fit.
        DataError: the weights cannot be read.
        MissingExtraError: torch is not installed here.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            "Reading a network needs torch, which is not installed beside Steptime; install "
            "Steptime where the training runs.",
            needs="steptime[quantize]",
        ) from error
    path, function = function_named(source)
    with blamed(path):
        built = getattr(_module_of(path), function, None)
        if not callable(built):
            raise UsageError(f"`{path}` has no function `{function}`.")
        model = built()
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"`{source}` returns a {type(model).__name__}, not a torch.nn.Module.")
    if weights is not None:
        _load_weights(model, weights)
    return model.float().cpu().eval()


def _module_of(path: Path) -> Any:
    folder = str(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"`{path}` is no module of Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def _load_weights(model: Any, path: Path) -> None:
    import torch

    if not path.is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="--weights names a file.")
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise MissingExtraError(
                "Reading this file needs safetensors, which is not installed.",
                needs="steptime[quantize]",
            ) from error
        state = load_file(path)
    else:
        import pickle

        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
            first = str(error).strip().splitlines()[0]
            raise DataError(
                f"`{path}` cannot be read as weights alone: {first}",
                hint="Write them with torch.save(model.state_dict(), FILE), or as safetensors.",
            ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    try:
        found = model.load_state_dict(state, strict=False)
    except (RuntimeError, TypeError, AttributeError) as error:
        told = " ".join(str(error).split())
        raise UsageError(f"the weights of `{path}` do not fit: {told}") from error
    wrong = [f"no `{name}`" for name in found.missing_keys]
    wrong += [f"`{name}` is of another network" for name in found.unexpected_keys]
    if wrong:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise UsageError(f"the weights of `{path}` do not fit: {', '.join(wrong[:4])}{more}.")


def load_arrays(path: Path, *, needs_labels: bool) -> tuple[Any, Any]:
    """Return the inputs (num, ...) and what they should give (num, ...); None where not needed.

    Raises:
        NotFoundError: the file is not there.
        UsageError: it has no `x`, or no `y` where that is needed, or they are unlike in length.
        DataError: it cannot be read, or has numbers that are not finite.
    """
    import numpy as np

    if not path.is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Name a file of NumPy.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise DataError(f"`{path}` cannot be read as arrays of NumPy (.npz): {error}") from error
    for name in ("x", "y") if needs_labels else ("x",):
        if name not in arrays:
            known = ", ".join(arrays) or "nothing"
            raise UsageError(f"`{path}` has no array `{name}`; it has {known}.")
    x, y = arrays["x"], arrays.get("y")
    if not len(x):
        raise UsageError(f"`{path}` has no rows.")
    if needs_labels and len(x) != len(arrays["y"]):
        raise UsageError(f"`{path}` has {len(x)} rows of `x` and {len(arrays['y'])} of `y`.")
    if not np.isfinite(x).all():
        raise DataError(f"`{path}`: `x` has numbers that are not finite.")
    return x, y
