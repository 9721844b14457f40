"""Judges networks of bytes on the evaluation rows, against the network in floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steptime.app.verify.verify_model import verify_model
from steptime.errors import UsageError
from steptime.quantize.integer.integer_network import IntegerNetwork
from steptime.verify.values.model_verdict import ModelVerdict

POINT = 0.01
"""The contract: a point of accuracy may be lost."""

BATCH = 64
_SLICE_MARGINS, _MOST_MARGIN = 5, 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The rows, and what the network in floats makes of them.

    Attributes:
        x: inputs (num_rows, ...).
        y: labels (num_rows,) or targets (num_rows, ...).
        metric: `accuracy` or `squared_error`.
        margin: the loss that does not matter.
        floats: outputs of the network in floats (num_rows, ...).
    """

    x: Any
    y: Any
    metric: str
    margin: float
    floats: Any

    @property
    def is_better_down(self) -> bool:
        """Whether less of the metric is better."""
        return self.metric != "accuracy"

    def predictions(self, integer: IntegerNetwork) -> Any:
        """Return the real outputs (num_rows, ...) of a network, some rows at a time."""
        import numpy as np

        parts = range(0, len(self.x), BATCH)
        return np.concatenate([integer.predict(self.x[i : i + BATCH]) for i in parts])

    def scores(self, made: Any) -> Any:
        """Return whether each row of outputs (num_rows, ...) is right, or its squared error."""
        if self.is_better_down:
            return ((made - self.y.reshape(made.shape)) ** 2).reshape(len(made), -1).mean(axis=1)
        return made.argmax(axis=-1) == self.y

    def judge(self, made: Any) -> ModelVerdict:
        """Compare outputs (num_rows, ...) with those in floats, row by row."""
        ids, margin, both = list(range(len(self.x))), self.margin, (self.floats, made)
        if self.is_better_down:
            rows = [{"id": ids, self.metric: self.scores(one)} for one in both]
            return verify_model(*rows, metric=self.metric, margin=margin, better="down")
        known = {"id": ids, "label": self.y, "class": self.y.astype(str)}
        rows = [known | {"prediction": one.argmax(axis=-1)} for one in both]
        return verify_model(*rows, metric=self.metric, margin=margin, slices=("class",),
                            slice_margin=min(_SLICE_MARGINS * margin, _MOST_MARGIN))  # fmt: skip


def evaluation_of(
    model: Any, x: Any, y: Any, *, metric: str | None, margin: float | None
) -> Evaluation:
    """Return the rows with what a `torch.nn.Module` makes of them.

    Raises:
        UsageError: `margin` is missing where the metric is not accuracy.
    """
    import numpy as np
    import torch

    is_labels = y.dtype.kind in "iub" and y.ndim == 1
    metric = metric or ("accuracy" if is_labels else "squared_error")
    if margin is None:
        if metric != "accuracy":
            raise UsageError(f"--margin is missing: how much of the {metric} may be lost.")
        margin = POINT
    parts = range(0, len(x), BATCH)
    with torch.no_grad():
        made = [model.eval()(torch.from_numpy(x[i : i + BATCH])).numpy() for i in parts]
    return Evaluation(x=x, y=y, metric=metric, margin=margin, floats=np.concatenate(made))
