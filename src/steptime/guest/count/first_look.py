"""What is looked at in the first counted update alone: zeros of its inputs, lines of operators.

In: the operators of that update. Out: facts for its line.
"""

from __future__ import annotations

from typing import Any

from ..sites.file_owners import FileOwners
from ..sites.frames import Frames
from .operators.operator_places import OperatorPlaces
from .operators.zero_inputs import ZeroInputs
from .tally import Tally


class FirstLook:
    """The looks at one update."""

    def __init__(self, torch: Any) -> None:
        frames = Frames(FileOwners(torch))
        self.zeros = ZeroInputs(torch, frames)
        self.places = OperatorPlaces(torch, frames)

    def see(self, func: Any, args: Any, ns: int, tally: Tally) -> None:
        """Take an operator that has run in `ns`."""
        self.zeros.see(func, args, ns, tally)
        self.places.see(func, ns, tally)

    def facts(self) -> dict[str, Any]:
        """Return what was seen."""
        return self.zeros.facts() | self.places.facts()
