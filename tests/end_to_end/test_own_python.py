"""A loop of the user's own is named by its file and line, wherever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from end_to_end.conftest import RunSpecimen
from end_to_end.harness import SPECIMENS, needs_torch

pytestmark = [needs_torch, pytest.mark.slow("a training of a specimen")]


def test_a_generator_of_batches_in_another_module_is_named(run_specimen: RunSpecimen) -> None:
    """As in DLRM, where another branch of the same method reads a file."""
    place = SPECIMENS / "clicks" / "generator.py"
    lines = place.read_text().splitlines()
    line = next(at for at, text in enumerate(lines, 1) if text.endswith("# ailment"))

    findings = run_specimen("made_clicks").data["diagnosis"]["findings"]

    (found,) = [one for one in findings if one["cause"] == "random_per_element"]
    file, _, numbers = found["where"].rpartition(":")
    assert Path(file) == place
    assert int(numbers.partition("-")[0]) == line
    assert found["headroom_speedup"] > 1.2
