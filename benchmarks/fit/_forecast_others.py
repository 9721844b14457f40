"""What other estimators say of a training's memory, as far as they are installed.

Each is given what it takes: a model, and where it knows of them a batch and an optimizer. None of
them takes autocast. In: a planted training. Out: bytes, or why there are none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from _forecast_models import Training


def accelerate(training: Training, trained_by: str) -> int:
    """Four times the weights: what `accelerate estimate-memory` prints for training by Adam."""
    from accelerate.utils import calculate_maximum_sizes

    return 4 * int(calculate_maximum_sizes(training.model)[0])


def torchinfo(training: Training, trained_by: str) -> int:
    """The estimated total size: inputs, outputs of layers forward and backward, weights."""
    from torchinfo import summary

    found = summary(copy.deepcopy(training.model), input_data=list(training.batch), verbose=0)
    return int(found.total_input + found.total_output_bytes + found.total_param_bytes)


def kitsune(training: Training, trained_by: str) -> int:
    """Its predicted total for training; it knows `sgd` and `adamw`, and one input."""
    from kitsune.predict import predict_memory

    first = training.batch[0]
    known = {"momentum": "sgd_momentum", "adafactor": "adafactor"}.get(trained_by, trained_by)
    found = predict_memory(
        copy.deepcopy(training.model),
        tuple(first.shape[1:]),
        batch_size=len(first),
        optimizer=known,
        training=True,
    )
    return int(found.total_bytes)


OTHERS: dict[str, Callable[[Training, str], int]] = {
    "accelerate": accelerate,
    "torchinfo": torchinfo,
    "torch-kitsune": kitsune,
}


def ask_others(training: Training, trained_by: str) -> dict[str, Any]:
    """What each of them says; a text where it fails, nothing where it is not installed."""
    found: dict[str, Any] = {}
    for name, ask in OTHERS.items():
        try:
            found[name] = ask(training, trained_by)
        except ModuleNotFoundError:
            continue
        except Exception as error:  # whatever it cannot do is its result
            found[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:100]}"
    return found
