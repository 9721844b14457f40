"""The lines that judge over seeds what changes the training.

In: a Study. Out: for each lever that needs such a proof, the command to type.
"""

from __future__ import annotations

import shlex

from steptime.tune.values.study_values import NEEDS_PROOF, Study

MARGIN, SEEDS = "1%-of-training", 5
"""What the lines ask for: a loss no larger than that of the last percent of the steps."""


def proof_lines(study: Study) -> list[tuple[str, str]]:
    """Return (lever, command) for each lever that needs proof over seeds and has a recipe."""
    waiting = [one for one in study.not_tried if one.reason == NEEDS_PROOF and one.candidate]
    return [(one.name, proof_line(study.command, str(one.candidate))) for one in waiting]


def proof_line(command: tuple[str, ...], recipe: str) -> str:
    """Return `steptime verify training …` for a recipe that nothing has proven.

    The metric is the script's own, so the line has a pattern to replace.
    """
    reference = shlex.join(command)
    # What `run` reports must not be taken for what the script says.
    ours = f"steptime run --recipe {shlex.quote(recipe)} --report /dev/null"
    candidate = f"{ours} -- {reference}"
    return (
        f"steptime verify training --margin {MARGIN} --seeds {SEEDS} --metric 'loss ([0-9.]+)' "
        f"--reference {shlex.quote(reference)} --candidate {shlex.quote(candidate)}"
    )
