"""Runs networks by ONNX Runtime, and times one input after the other."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from steptime.errors import MissingExtraError
from steptime.quantize.values.quantized_model import InferenceTime

_WARM_UP = 20


def session_of(model: Any) -> Any:
    """Return a session of an ONNX model, on one thread that does not spin.

    Raises:
        MissingExtraError: ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "Running networks needs onnxruntime, which is not installed.",
            needs="steptime[quantize]",
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def outputs_of(session: Any, inputs: Any, names: Sequence[str] | None = None) -> list[Any]:
    """Return outputs (all, or those named) for inputs as in training (num_inputs, ...)."""
    is_whole = session.get_inputs()[0].type == "tensor(int64)"
    kind = np.int64 if is_whole else np.float32
    return list(session.run(names, {"input": np.asarray(inputs, dtype=kind)}))


def time_in_turns(
    models: Mapping[str, Any],
    inputs: Any,
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    is_warm: bool = False,
) -> tuple[InferenceTime, ...]:
    """Return the time of one input by each model, which take turns.

    Their order is drawn for each input: what ran before has filled the caches.

    Args:
        models: ONNX models by name.
        inputs: as in training (num_inputs, ...).
        rounds: inputs that are timed.
        clock: the time now [s]; `time.thread_time` leaves out what other processes took.
        is_warm: each model runs once before it is timed, so that its number of neighbors, which
            fill the caches, does not count.
    """
    sessions = {name: session_of(model) for name, model in models.items()}
    taken: dict[str, list[float]] = {name: [] for name in sessions}
    chance = random.Random(0)
    for i in range(rounds + _WARM_UP):
        one = np.asarray(inputs[i % len(inputs)][None])
        for name in chance.sample(list(sessions), len(sessions)):
            if is_warm:
                sessions[name].run(None, {"input": one})
            begin = clock()
            outputs_of(sessions[name], one)
            taken[name].append(clock() - begin)
    return tuple(
        InferenceTime(
            name=name,
            median_ms=float(np.median(found[_WARM_UP:])) * 1e3,
            p99_ms=float(np.quantile(found[_WARM_UP:], 0.99)) * 1e3,
            n=rounds,
        )
        for name, found in taken.items()
    )
