"""The words on an edit of the user's source that a finding offers."""

from __future__ import annotations

from steptime.measure.values.observations import SourceEdit

_KEEPS = {
    "same_numbers": "This edit gives the same numbers, bit for bit",
    "other_random_numbers": "This edit draws from the same distribution, but from torch's "
    "generator: the random numbers are other ones",
}


def describe_edit(edit: SourceEdit) -> str:
    """Say what an edit keeps; a colon and the edit follow."""
    return _KEEPS.get(edit.keeps, "This edit may help")
