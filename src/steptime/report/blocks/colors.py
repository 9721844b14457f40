"""The colors of the page: each thing that is drawn has one color, the same in tables and plots.

The hues are from the palette of Okabe and Ito (2008), which people with color blindness can
distinguish; all are of middle lightness, so that they stand out on white and on black.
"""

from __future__ import annotations

from collections.abc import Mapping

PHASE_COLORS: Mapping[str, str] = {
    "input_wait": "#e69f00",
    "process_wait": "#a86a2d",
    "rollout": "#b8a000",
    "fetch": "#f0bf55",
    "collate": "#f5d48c",
    "h2d": "#c98a4b",
    "forward": "#56b4e9",
    "loss": "#8fd0f5",
    "forward_and_loss": "#56b4e9",
    "backward": "#2c7fb8",
    "gradient_processing": "#7f7fd5",
    "communication": "#cc79a7",
    "optimizer": "#009e73",
    "sync": "#d55e00",
    "other": "#9aa0a6",
}

EVENT_COLORS: Mapping[str, str] = {
    "evaluation": "#7f7fd5",
    "checkpoint": "#009e73",
    "epoch_start": "#9aa0a6",
    "compile": "#e69f00",
    "gc": "#cc79a7",
    "recompile": "#d55e00",
    "graph_break": "#c98a4b",
    "throttle": "#d55e00",
    "stall": "#e0393e",
}

PART_COLORS: Mapping[str, str] = {
    "arithmetic": "#009e73",
    "ceiling": "#8fd0f5",
    "precision": "#56b4e9",
    "threads": "#2c7fb8",
    "recomputation": "#7f7fd5",
    "shape": "#4e7fc4",
    "bandwidth": "#e69f00",
    "slow_operators": "#f0bf55",
    "device_operators": "#f0bf55",
    "launch": "#d55e00",
    "script": "#c98a4b",
    "contention": "#7d8590",
    "unexplained": "#9aa0a6",
    "loss": PHASE_COLORS["loss"],
    "input": PHASE_COLORS["input_wait"],
    "rollout": PHASE_COLORS["rollout"],
    "process_wait": PHASE_COLORS["process_wait"],
    "preprocessing": PHASE_COLORS["fetch"],
    "copies": PHASE_COLORS["h2d"],
    "communication": PHASE_COLORS["communication"],
    "sync": PHASE_COLORS["sync"],
    "gradient_processing": PHASE_COLORS["gradient_processing"],
    "optimizer": PHASE_COLORS["optimizer"],
}

WALL_COLORS: Mapping[str, str] = {
    "interpreter": "#c4c9cf",
    "imports": "#7d8590",
    "data_set": "#e69f00",
    "model": "#f0bf55",
    "loading": "#c98a4b",
    "setup": "#9aa0a6",
    "first_batch": "#f5d48c",
    "compile": "#d55e00",
    "warmup": "#8fd0f5",
    "steps": "#2c7fb8",
    "epoch_start": "#c98a4b",
    "evaluation": "#7f7fd5",
    "checkpoint": "#009e73",
    "logging": "#56b4e9",
    "stalled": "#e0393e",
    "wasted_updates": "#e0393e",
    "skipped_updates": "#cc79a7",
    "earlier_starts": "#cc79a7",
    "unseen": "#c4c9cf",
    "after_steps": "#9aa0a6",
    "exit": "#c4c9cf",
}

HOLDER_COLORS: Mapping[str, str] = {
    "weights": "#2c7fb8",
    "buffers": "#8fd0f5",
    "gradients": "#7f7fd5",
    "optimizer": "#009e73",
    "activations": "#e69f00",
    "logits": "#d55e00",
    "inputs": "#f5d48c",
    "others": "#c98a4b",
    "temporaries": "#9aa0a6",
    "process": "#56b4e9",
    "fragmentation": "#cc79a7",
    "context": "#56b4e9",
}
"""Who holds memory; the parts that stay from step to step come first."""

CLASS_COLORS: Mapping[str, str] = {
    "matmul": "#2c7fb8",
    "convolution": "#009e73",
    "attention": "#cc79a7",
    "recurrent": "#7f7fd5",
    "normalization": "#d55e00",
    "elementwise": "#e69f00",
    "embedding": "#c98a4b",
    "sparse": "#56b4e9",
}

LOADER_COLORS: Mapping[str, str] = {
    "fetch": "#2c7fb8",
    "decode": "#e69f00",
    "transform": "#009e73",
    "collate": "#cc79a7",
    "pin": "#9aa0a6",
    "copy": "#d55e00",
}

ROOF_COLORS: Mapping[str, str] = {
    "fp32": "#2c7fb8",
    "tf32": "#7f7fd5",
    "bf16": "#009e73",
    "fp16": "#cc79a7",
}

STEADY, WARMUP, OUTLIER, DISTURBED = "#2c7fb8", "#9aa0a6", "#d55e00", "#cc79a7"
LINES = ("#2c7fb8", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7fd5", "#9aa0a6")
"""Colors for things of which there may be any number: ranks and devices."""
