"""Findings on the peak of memory are made of what real steps hold."""

from __future__ import annotations

import pytest

from end_to_end.conftest import RunSpecimen, SpecimenRun
from end_to_end.harness import needs_linux, needs_torch

pytestmark = [needs_torch, needs_linux]

CAUSES = ("longest_to_come", "peak_by_length", "large_temporaries", "fragmentation")


def peaks_found(run: SpecimenRun) -> dict[str, dict[str, object]]:
    return {found["cause"]: found for found in run.findings() if found["cause"] in CAUSES}


def test_distances_that_are_written_out_are_large_temporaries(run_specimen: RunSpecimen) -> None:
    found = peaks_found(run_specimen("large_temporaries"))

    assert set(found) == {"large_temporaries"}
    assert "in the forward of Net.codebook" in str(found["large_temporaries"]["where_text"])


def test_one_long_text_makes_the_peak_go_with_length(run_specimen: RunSpecimen) -> None:
    how = ("--long", "2048", "--in-order", "--plant", "200", "--steps", "80")
    found = peaks_found(run_specimen("long_sample", *how))

    assert "peak_by_length" in found
    evidence = {one["name"]: one["value"] for one in found["peak_by_length"]["evidence"]}  # type: ignore[attr-defined]
    assert evidence["step"] == 50


@pytest.mark.parametrize("name", ["healthy", "small_convnet", "padded_texts"])
def test_usual_trainings_have_none_of_them(run_specimen: RunSpecimen, name: str) -> None:
    assert peaks_found(run_specimen(name)) == {}
