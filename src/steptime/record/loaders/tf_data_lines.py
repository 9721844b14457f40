"""Whether the guest has read tf.data's statistics for long enough."""

from __future__ import annotations

from pathlib import Path

from .. import kinds
from ..files import TF_DATA
from ..lines import kind_of, read_lines


def has_enough(folder: Path) -> bool:
    """Return whether a process of a run has read its pipeline for long enough.

    Raises:
        OSError: a file of the run cannot be read.
    """
    return any(
        kind_of(line) == kinds.ENOUGH for path in folder.glob(TF_DATA) for line in read_lines(path)
    )
