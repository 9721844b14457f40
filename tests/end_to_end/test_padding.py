"""Padding is counted exactly in each way a script may show it, and changes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import RunSpecimen, SpecimenRun
from end_to_end.harness import SPECIMENS, needs_linux, needs_torch, rows, run_both_forked

pytestmark = [needs_torch, needs_linux]

TEXT = str(Path(__file__).parents[2] / "examples" / "gpt" / "tinyshakespeare.txt")
WAYS = {
    "mask": "attention_mask",
    "labels": "labels",
    "token": "padding_token",
    "left": "attention_mask",
    "collator": "attention_mask",
    "packed": "sequence_bounds",
}
REAL = ("mask", "packed")
"""Ways whose rows are paragraphs of a real text; the others have random lengths."""


def run_way(run_specimen: RunSpecimen, way: str) -> SpecimenRun:
    text = ("--text", TEXT) if way in REAL else ()
    return run_specimen("padded", "--way", way, "--width", "48", *text)


def batches_of(run: SpecimenRun) -> list[list[int]]:
    """Rows, width, used positions and positions of the loss, as the script itself counts them."""
    return [[*map(int, line.split()[1:])] for line in re.findall(r"batch .*", run.stdout)]


def looks_of(run: SpecimenRun) -> list[list[Any]]:
    lines = rows(run.folder / "rank-0.jsonl")
    return [row for line in lines if line["k"] == "l" for row in line["rows"]]


def update_of(number: int) -> int:
    """The update in which a look was taken; the first one has two rows: backward, and step."""
    return max(0, number - 1)


@pytest.mark.parametrize("way", WAYS)
def test_padding_is_exact_against_the_mask(run_specimen: RunSpecimen, way: str) -> None:
    run = run_way(run_specimen, way)
    told, looks = batches_of(run), looks_of(run)

    assert len(told) == 40
    assert len(looks) >= 14
    for number, _, num_rows, _, num_seen, _, num_trained, _, lengths in looks:
        rows_told, width, used, trained = told[update_of(number)]
        assert sum(lengths) == used
        assert len(lengths) == rows_told
        if way != "packed":
            assert (num_rows, num_seen) == (rows_told, rows_told * width)
        if num_trained >= 0:
            assert num_trained == trained
    used = sum(told[update_of(look[0])][2] for look in looks)
    seen = sum(look[4] for look in looks)
    assert run.data["work"]["useful_fraction"] == pytest.approx(used / seen, abs=1e-12)
    assert run.data["padding"]["seen_by"] == WAYS[way]
    assert "guest_failures" not in {note["code"] for note in run.data["notes"]}


@pytest.mark.parametrize("way", ["mask", "token"])
def test_a_padded_training_is_told_so_with_its_line(run_specimen: RunSpecimen, way: str) -> None:
    run = run_way(run_specimen, way)

    (finding,) = [one for one in run.findings("PADDING") if one["cause"] == "padding"]
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    assert evidence["useful"] == run.data["work"]["useful_fraction"] < 0.9
    assert finding["site"]["file"].endswith("padded.py")


@pytest.mark.parametrize(
    "name", ["healthy", "textbook", "small_convnet", "gan", "no_loader", "teacher"]
)
def test_trainings_without_lengths_are_left_alone(run_specimen: RunSpecimen, name: str) -> None:
    run = run_specimen(name)

    assert run.findings("PADDING", "IMBALANCE") == []


def test_packed_rows_are_left_alone(run_specimen: RunSpecimen) -> None:
    run = run_way(run_specimen, "packed")

    assert run.data["work"]["useful_fraction"] == 1.0
    assert run.findings("PADDING") == []


@pytest.mark.slow("two ranks under torchrun")
def test_ranks_of_uneven_rows_are_named_with_their_work(run_specimen: RunSpecimen) -> None:
    run = run_specimen("uneven_ranks", nproc=2)
    lines = re.findall(r"rank (\d) elements ([\d ]+)\.", run.stdout)
    told = {int(rank): [*map(int, nums.split())] for rank, nums in lines}

    (finding,) = run.findings("IMBALANCE")
    evidence = {item["name"]: item["value"] for item in finding["evidence"]}
    excess = {max(pair) / (sum(pair) / 2) - 1 for pair in zip(told[0], told[1], strict=True)}
    assert finding["cause"] == "imbalance"
    assert finding["site"]["file"].endswith("uneven_ranks.py")
    assert [evidence["excess"]] == pytest.approx([*excess])
    assert evidence["rank_0_longest"] + evidence["rank_1_longest"] == pytest.approx(1)
    assert evidence["rank_0_work"] + evidence["rank_1_work"] == pytest.approx(2)


@pytest.mark.parametrize("way", ["token", "collator"])
def test_a_padded_training_computes_what_it_computes_alone(tmp_path: Path, way: str) -> None:
    bare, observed = run_both_forked(tmp_path, "python", SPECIMENS / "padded.py", "--way", way)

    assert observed.stdout == bare.stdout
    assert b"loss" in bare.stdout
