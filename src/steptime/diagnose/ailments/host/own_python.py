"""Rules on the script's own Python: a loop over elements, where one call could do all of them.

Each rule takes a Measurement and gives a Finding with the line and, where it is certain, the edit,
or None where it does not apply; the rows below have the words. A lever can make an edit that keeps
the same numbers and is inside a function.
docs/explanation/diagnosis.md explains them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_same_load, without
from steptime.diagnose.ailments.contention import missing_beside_phases
from steptime.diagnose.ailments.scale import SCALE, severity_of
from steptime.diagnose.ailments.signals import (
    count,
    cpu_fraction_of,
    fraction_of,
    make_finding,
    share,
    worker_fraction,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import PythonLoop

LEVER = "vectorized_loops"


def find_python_loop(measurement: Measurement, *, code: str) -> Finding | None:
    """HOST_BOUND: the lines around a loop over elements take much of a step."""
    loops = [one for one in measurement.python_loops if one.code == code]
    if _is_lever_on(measurement):  # the source still has the loop, the run had not
        loops = [one for one in loops if one.edit is None or not one.edit.is_live]
    shares = [(_fraction(measurement, one), one) for one in loops]
    known = [(fraction, one) for fraction, one in shares if fraction is not None]
    if not known:
        return None
    fraction, loop = max(known, key=lambda pair: pair[0])
    severity = severity_of(fraction)
    if severity is None:
        return None
    found = make_finding(
        _BY_CAUSE[code],
        severity=severity,
        evidence=(
            share("python_loop", fraction),
            share("share_of_phase", loop.share_of_phase),
            *((count("other_loops", loop.num_others),) if loop.num_others else ()),
        ),
        fraction=fraction,
        missing=missing_beside_phases(measurement),
    )
    names = {"phase": loop.phase}
    text = None if loop.end_line > loop.line else loop.text
    return replace(found, where=loop.place, where_text=text, names=names, edit=loop.edit)


def _is_lever_on(measurement: Measurement) -> bool:
    use = measurement.recipe
    return use is not None and any(one.name == LEVER and one.error is None for one in use.levers)


def _fraction(measurement: Measurement, loop: PythonLoop) -> float | None:
    """Return the share of a step that the loop takes at most; None where it is not known.

    It is of wall time or of CPU time, whichever is more: beside others, waits for a core stretch
    the short phases most, and a loop keeps its share of the CPU time. Collections of garbage lie
    in any phase, and are no part of a loop.
    """
    of_phase = fraction_of(measurement, loop.phase)
    of_cpu = cpu_fraction_of(measurement, loop.phase)
    if of_phase is not None and of_cpu is not None:
        of_phase = max(of_phase, min(1.0, of_cpu))
    if of_phase is None and measurement.workers is not None:
        # Workers fetch beside the step, which waits for them at most as long.
        waits, work = fraction_of(measurement, "input_wait"), worker_fraction(measurement)
        of_phase = None if waits is None or work is None else min(waits, work)
    if of_phase is None:
        return None
    collected = max((rank.gc.fraction for rank in measurement.ranks if rank.gc), default=0.0)
    fraction = max(0.0, of_phase - collected) * loop.share_of_phase
    return min(1.0, fraction, _sampled_at_most(measurement, loop))


def _sampled_at_most(measurement: Measurement, loop: PythonLoop) -> float:
    """Return the share of the steps that a loop's lines take at most, by the sampled stacks.

    The lines around were timed together; in what is read into them a library may take the time.
    Stacks of workers are not sampled.
    """
    spent = measurement.spent
    if spent is None or measurement.workers is not None:
        return 1.0
    lines = range(loop.line, loop.end_line + 1)
    found = [one.fraction for one in spent.lines if one.file == loop.file and one.line in lines]
    fraction = math.fsum(found)
    error = math.sqrt(max(fraction, 1 / spent.num_samples) / spent.num_samples)
    return fraction + 2 * error


def _row(
    code: str, *, what: str, sentence: str, remedy: str, levers: tuple[str, ...] = ()
) -> Ailment:
    return Ailment(
        kind=BottleneckKind.HOST_BOUND,
        cause=code,
        what=what,
        needs="the script's source, the time of its lines",
        rule=partial(find_python_loop, code=code),
        asked=Asked.ENOUGH_STEPS,
        thresholds=SCALE,
        sentence=f"{sentence} The lines around take {{python_loop}} of a step.",
        removal=without("that loop"),
        remedy=remedy,
        levers=levers,
        when_contended=by_same_load(
            "A loop in Python is CPU time of the thread that runs the step: both take longer alike."
        ),
    )


RANDOM = _row(
    "random_per_element",
    what="random numbers are drawn one by one, or a few at a time",
    sentence="Python draws random numbers one by one, or a few at a time.",
    remedy="Draw them with one call: torch.rand, torch.randint, or NumPy with a size.",
    levers=(LEVER,),
)
SAMPLED = _row(
    "sampled_one_by_one",
    what="samples of a batch (of a replay buffer, say) are drawn and taken one by one",
    sentence="the samples of a batch are drawn and taken one by one.",
    remedy="Keep each field of the samples in one tensor, draw all indices with one torch.randint, "
    "and take the batch by them: states[indices].",
)
TENSOR = _row(
    "tensor_of_list",
    what="a tensor is made of a list that Python computes element by element",
    sentence="Python computes a list element by element and makes a tensor of it.",
    remedy="Compute on whole tensors or NumPy arrays instead of on a list of numbers.",
)
STACK = _row(
    "stack_of_list",
    what="tensors are made one by one, appended and stacked",
    sentence="tensors are made one by one and then stacked.",
    remedy="Make them with one call: one index for all rows (data[indices]), or one operator on "
    "all of them.",
    levers=(LEVER,),
)
GROWING = _row(
    "growing_tensor",
    what="a tensor grows by concatenation in a loop, which copies it each time",
    sentence="a tensor grows by concatenation in a loop, and each round copies all of it.",
    remedy="Append the parts to a list and concatenate once, behind the loop.",
)
READS = _row(
    "element_reads",
    what="a loop reads a tensor element by element",
    sentence="Python reads a tensor element by element.",
    remedy="Compute on the whole tensor, or read it once before the loop (x.tolist()).",
    levers=(LEVER,),
)
WRITES = _row(
    "element_writes",
    what="a loop writes a tensor or an array element by element",
    sentence="Python writes a tensor or an array element by element.",
    remedy="Assign whole rows or slices, or use one index for all elements (x[rows, columns] = y).",
)
AILMENTS = (SAMPLED, RANDOM, READS, WRITES, STACK, TENSOR, GROWING)
_BY_CAUSE = {row.cause: row for row in AILMENTS}
