"""The colors of the page: each thing that is drawn has one color, the same in tables and plots.

The hues are from the palette of Okabe and Ito (2008), which people with color blindness can
distinguish; all are of middle lightness, so that they stand out on white and on black.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

GREY = "#9aa0a6"
_HUES: Mapping[str, str] = {
    "#e69f00": "input_wait bandwidth input data_set activations elementwise",
    "#a86a2d": "process_wait",
    "#b8a000": "rollout",
    "#f0bf55": "fetch slow_operators device_operators preprocessing model",
    "#f5d48c": "collate first_batch inputs",
    "#c98a4b": "h2d script copies loading epoch_start graph_break others embedding",
    "#56b4e9": "forward forward_and_loss precision logging process context sparse",
    "#8fd0f5": "loss ceiling buffers",
    "#2c7fb8": "backward threads steps weights matmul fp32 decode",
    "#7f7fd5": "gradient_processing recomputation evaluation gradients recurrent tf32",
    "#cc79a7": "communication skipped_updates earlier_starts gc fragmentation attention fp16",
    "#009e73": "optimizer arithmetic checkpoint convolution bf16 transform",
    "#d55e00": "sync launch compile recompile throttle logits normalization copy",
    GREY: "view other unexplained setup after_steps temporaries pin",
    "#4e7fc4": "shape",
    "#7d8590": "contention imports",
    "#c4c9cf": "interpreter unseen exit",
    "#e0393e": "stalled wasted_updates stall",
}
"""Phases, parts of a step and of a run, events, holders of memory, operators and types by hue."""
COLORS: Mapping[str, str] = {
    "warmup": "#8fd0f5",
    **{name: hue for hue, names in _HUES.items() for name in names.split()},
}

STEADY, WARMUP, OUTLIER, DISTURBED = "#2c7fb8", GREY, "#d55e00", "#cc79a7"
LINES = ("#2c7fb8", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7fd5", GREY)
"""Colors for things of which there may be any number: ranks and devices."""


def color_of(name: str) -> str:
    """Return the color of something by its machine word; grey where it has none."""
    return COLORS.get(name, GREY)
