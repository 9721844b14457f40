"""torchvision where its compiled operators cannot be loaded, as beside a torch without CUDA.

Its import asks for two of them by name only; declared, they may be absent.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@functools.cache
def load_torchvision() -> Any:
    """Return the module.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module("torchvision")
    except RuntimeError:  # operator torchvision::nms does not exist
        torch = import_module("torch")
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(name + BOXES)
        load_torchvision.library = library  # type: ignore[attr-defined]
    return import_module("torchvision")
