"""Levers that free memory in the user's process: what a trial tells, and that each bit stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import SCRIPTS, fork_bare, needs_linux, needs_torch
from end_to_end.test_fused_levers import tried
from steptime.core.codec import from_json
from steptime.levers import file_of, load
from steptime.levers.base import BlockFacts
from steptime.levers.memory.selective_checkpointing import settings_for

pytestmark = [needs_torch, needs_linux]

SCRIPT = SCRIPTS / "blocks.py"


def bare(folder: Path, *words: str) -> bytes:
    return fork_bare(folder, "python", SCRIPT, *words).finish().stdout


def on(name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "settings": settings, "file": file_of(load(name))}]


def test_a_trial_measures_blocks_and_what_is_chosen_from_them_changes_no_bit(
    tmp_path: Path,
) -> None:
    expected = bare(tmp_path / "bare")
    printed, facts = tried(tmp_path / "probe", SCRIPT)
    blocks = tuple(from_json(BlockFacts, row) for row in facts["blocks"])
    wanted = sum(one.kept_bytes for one in blocks) // 2
    settings = settings_for(blocks, wanted)
    levers = on("selective_checkpointing", dict(settings))
    with_lever, _ = tried(tmp_path / "on", SCRIPT, levers=levers, probe=False)

    assert [one.name for one in blocks] == [f"Net.blocks.{number}" for number in range(6)]
    assert printed == with_lever == expected


def test_weights_that_are_updated_in_the_backward_end_with_the_same_bits(tmp_path: Path) -> None:
    expected = bare(tmp_path / "bare")
    printed, facts = tried(tmp_path / "probe", SCRIPT)
    levers = on("optimizer_in_backward", {})
    with_lever, _ = tried(tmp_path / "on", SCRIPT, levers=levers, probe=False)

    assert printed == with_lever == expected
    assert facts["backwards_per_update"] == 1
    assert (facts["reads_gradients"], facts["changes_rates_late"]) == (False, False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--clip",), ("reads_gradients", True)),
        (("--late-rate",), ("changes_rates_late", True)),
        (("--accumulate", "3"), ("backwards_per_update", 3)),
    ],
)
def test_a_trial_tells_who_needs_gradients_before_the_update(
    tmp_path: Path, words: tuple[str, ...], told: tuple[str, Any]
) -> None:
    printed, facts = tried(tmp_path / "probe", SCRIPT, *words)

    assert printed == bare(tmp_path / "bare", *words)
    assert facts[told[0]] == told[1]
