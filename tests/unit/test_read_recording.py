"""What a quality run wrote is read back whole, or refused as damaged."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from steptime.errors import DamagedRunError
from steptime.verify.recordings import read_recording

HEAD = {
    "k": "head",
    "schema": 1,
    "rank": 0,
    "world_size": 1,
    "num_updates": 4,
    "is_double": False,
    "perturb": None,
    "initial": 5,
}


def write(folder: Path, *lines: dict[str, object], values: int = 6) -> Path:
    """One rank's recording, whose tensors hold 0, 1, 2 and so on."""
    text = "".join(json.dumps(line) + "\n" for line in (HEAD, *lines))
    (folder / "quality-0.jsonl").write_text(text)
    (folder / "quality-0.bin").write_bytes(array("d", range(values)).tobytes())
    return folder


def first(
    *, offset: int = 0, names: tuple[str, ...] = ("a", "b"), counts: tuple[int, ...]
) -> dict[str, object]:
    return {
        "k": "first",
        "n": 0,
        "opt": 0,
        "what": "gradient",
        "names": names,
        "counts": counts,
        "offset": offset,
    }


def test_the_first_updates_tensors_are_cut_out_of_the_values(tmp_path: Path) -> None:
    folder = write(tmp_path, first(counts=(2, 1)), first(offset=3, counts=(1, 2)))

    (rank,) = read_recording(folder).ranks

    assert [(one.name, [*one.values]) for one in rank.first] == [
        ("a", [0, 1]),
        ("b", [2]),
        ("a", [3]),
        ("b", [4, 5]),
    ]


def test_values_that_end_within_a_number_lose_that_number(tmp_path: Path) -> None:
    folder = write(tmp_path, first(counts=(2, 3)))
    with (folder / "quality-0.bin").open("r+b") as file:
        file.truncate(5 * 8 + 3)

    assert [len(one.values) for one in read_recording(folder).ranks[0].first] == [2, 3]


@pytest.mark.parametrize(
    "line",
    [
        first(counts=(3, 4)),
        first(offset=4, counts=(2, 1)),
        first(counts=(2,)),
        first(names=("a",), counts=(2, 1)),
    ],
)
def test_tensors_whose_values_are_missing_are_damage(
    tmp_path: Path, line: dict[str, object]
) -> None:
    with pytest.raises(DamagedRunError, match="first update"):
        read_recording(write(tmp_path, line))


def test_what_ended_before_its_head_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "quality-0.jsonl").write_text("")

    assert read_recording(tmp_path).ranks == ()
    assert read_recording(tmp_path).num_updates == 0
