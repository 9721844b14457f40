"""Ailments of work that a step does for nothing, at lines that sampled stacks were seen at.

In: a Measurement with the lines that its steps' time goes to. Out: findings with the line, its
share, and what would do instead. Where the source does not show without a doubt what a line does,
no finding is made of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from steptime.diagnose.ailments.ailment import Ailment, Asked, Removal, by_same_load, without
from steptime.diagnose.ailments.scale import (
    MIN_EXPLAINED,
    SCALE,
    Threshold,
    severity_of,
)
from steptime.diagnose.ailments.signals import count, fraction_of, make_finding, seconds, share
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.spent_line import SpentLine, SpentTime

MIN_SEEN = Threshold(
    name="MIN_SEEN",
    value=8,
    why="samples: where that many of 80 were at a line, it has 4 % of the time or more "
    "(Clopper-Pearson, 95 %)",
)
MIN_GROWTH = Threshold(
    name="MIN_GROWTH",
    value=0.15,
    why="half of what a part has whose time grows in proportion to the updates so far (1/3)",
)
GROWTH_SD = 1 / math.sqrt(3)
"""Standard deviation of the growth of one sample, which is uniform between -1 and 1."""

Group = tuple[SpentLine, ...]


def find_needless(measurement: Measurement, *, code: str) -> Finding | None:
    """HOST_BOUND or INPUT_BOUND: a call that is known to be needless takes much of a step."""
    group = lines_of(measurement, code)
    fraction = math.fsum(line.fraction for line in group)
    severity = severity_of(fraction)
    num = sum(line.num_samples for line in group)
    if severity is None or num < MIN_SEEN.value or measurement.spent is None:
        return None
    found = make_finding(
        _BY_CODE[code],
        severity=severity,
        evidence=(
            share("needless", fraction),
            seconds("needless_time", fraction * measurement.spent.step_s),
            count("num_samples", num),
        ),
        fraction=fraction,
    )
    return _at(found, group)


READS = ("row_of_frame", "chunk_of_file")
"""What the library that it was in says, whatever loop calls it."""


def lines_of(measurement: Measurement, code: str) -> Group:
    """Return the lines of the function that spends most in what a word stands for.

    Lines of a loop over elements that is known to take as much are left out: it has a finding.
    """
    spent, loops = measurement.spent, measurement.python_loops
    if spent is None:
        return ()
    groups: defaultdict[tuple[str, str], list[SpentLine]] = defaultdict(list)
    for line in spent.lines:
        is_loop = line.code not in READS and any(
            loop.file == line.file
            and loop.line <= line.line <= loop.end_line
            and (fraction_of(measurement, loop.phase) or 0.0) * loop.share_of_phase
            >= MIN_EXPLAINED.value * line.fraction
            for loop in loops
        )
        if line.code == code and not is_loop:
            groups[line.file, line.function].append(line)
    return tuple(max(groups.values(), key=_fraction, default=()))


def needless_share(measurement: Measurement, what: str) -> float:
    """Return the share of a step that known needless calls take within a phase."""
    lines = () if measurement.spent is None else measurement.spent.lines
    return math.fsum(line.fraction for line in lines if line.what == what and line.code)


def _fraction(lines: Iterable[SpentLine]) -> float:
    return math.fsum(line.fraction for line in lines)


def _at(found: Finding, group: Group) -> Finding:
    """Return a finding at the longest line of a group."""
    first = max(group, key=lambda line: line.fraction)
    names = {"function": first.function, "callee": first.callee}
    names = {key: word for key, word in names.items() if word}
    return replace(found, where=first.place, where_text=first.text, names=names or None)


def find_growing(measurement: Measurement) -> Finding | None:
    """HOST_BOUND: a function between the phases takes longer from step to step."""
    spent, group = measurement.spent, _growing_lines(measurement)
    fraction = _fraction(group)
    severity = severity_of(fraction)
    if severity is None or spent is None:
        return None
    # A straight line through the times of the updates: its mean, and its slope by the growth.
    mean_s, slope = fraction * spent.step_s, min(1.0, 3 * _growth(group))
    found = make_finding(
        GROWS,
        severity=severity,
        evidence=(
            share("needless", fraction),
            seconds("at_first", mean_s * (1 - slope)),
            seconds("at_last", mean_s * (1 + slope)),
            count("num_samples", sum(line.num_samples for line in group)),
        ),
        fraction=fraction,
    )
    return _at(found, group)


def explained_by_calls(measurement: Measurement, wait: float) -> bool:
    """Return whether calls that have an input-bound finding are most of a wait for data."""
    groups = [lines_of(measurement, row.cause or "") for row in (FRAME_ROW, FILE_CHUNK)]
    most = max(map(_fraction, groups))
    return severity_of(most) is not None and most >= MIN_EXPLAINED.value * wait


def is_collected_by_script(measurement: Measurement, collected: float) -> bool:
    """Return whether calls of the script's own are most of the collections of garbage."""
    called = _fraction(lines_of(measurement, COLLECTS.cause or ""))
    return severity_of(called) is not None and called >= MIN_EXPLAINED.value * collected


def growing_share(measurement: Measurement) -> float:
    """Return the share of all steps' time that a function takes whose time grows."""
    return _fraction(_growing_lines(measurement))


def _growing_lines(measurement: Measurement) -> Group:
    spent = measurement.spent
    if spent is None:
        return ()
    groups: defaultdict[tuple[str, str], list[SpentLine]] = defaultdict(list)
    for line in spent.lines:
        if line.what == "other":
            groups[line.file, line.function].append(line)
    growing = [group for group in groups.values() if _grows(group, spent)]
    return tuple(max(growing, key=_fraction, default=()))


def _grows(group: Sequence[SpentLine], spent: SpentTime) -> bool:
    """Return whether a function's time grows beyond doubt while that of the others does not."""
    num = sum(line.num_samples for line in group)
    growth = _growth(group)
    if num < MIN_SEEN.value or growth < MIN_GROWTH.value + 2 * GROWTH_SD / math.sqrt(num):
        return False
    rest = [line for line in spent.lines if line not in group]
    if not rest:
        return True
    # Where the rest of a step grows as well, its inputs or the machine have changed.
    of_rest = _growth(rest)
    error = GROWTH_SD * math.sqrt(1 / num + 1 / sum(line.num_samples for line in rest))
    return of_rest < MIN_GROWTH.value and growth - of_rest > 2 * error


def _growth(lines: Sequence[SpentLine]) -> float:
    total = _fraction(lines)
    return math.fsum(line.fraction * line.growth for line in lines) / total if total else 0.0


_SAME_LOAD = by_same_load(
    "A line keeps its share of the samples where other programs make all of a step longer."
)


def _row(
    code: str,
    *,
    kind: BottleneckKind = BottleneckKind.HOST_BOUND,
    what: str,
    sentence: str,
    explanation: str | None = None,
    removal: str,
    remedy: str,
) -> Ailment:
    return Ailment(
        kind=kind,
        cause=code,
        what=what,
        needs="sampled stacks, the script's source",
        rule=partial(find_needless, code=code),
        asked=Asked.ENOUGH_STEPS,
        thresholds=(MIN_SEEN, *SCALE),
        sentence=sentence,
        explanation=explanation,
        removal=without(removal),
        remedy=remedy,
        when_contended=_SAME_LOAD,
    )


COLLECTS = _row(
    "collects_garbage",
    what="the script itself collects garbage in its steps",
    sentence="the script calls gc.collect() in its steps, which takes {needless} of a step.",
    explanation="Each call goes through every object that Python tracks.",
    removal="these calls",
    remedy="Take gc.collect() out of the step: tensors are freed by their reference counts, and "
    "Python collects cycles by itself.",
)
EMPTIES = _row(
    "empties_cache",
    what="the script empties the allocator's cache in its steps",
    sentence="the script calls empty_cache() in its steps, which takes {needless} of a step.",
    explanation="The next step asks the device for the same memory again.",
    removal="these calls",
    remedy="Take empty_cache() out of the step: the allocator gives the memory to the next one.",
)
TENSORS = _row(
    "tensor_of_arrays",
    what="tensors are made of Python lists (of arrays, say) element by element",
    sentence="{function} makes tensors of Python lists, element by element, which takes {needless} "
    "of a step.",
    removal="that work",
    remedy="Put the arrays together first, torch.from_numpy(np.stack(rows)), or keep them in one "
    "array or tensor and take the rows by their indices.",
)
WEIGHTS = _row(
    "weights_one_by_one",
    what="a loop goes through a model's tensors one at a time, to average or to measure them",
    sentence="{function} goes through a model's tensors one at a time, which takes {needless} of a "
    "step.",
    removal="that loop",
    remedy="Do it for all tensors in a few calls: torch._foreach_lerp_, or get_ema_multi_avg_fn of "
    "torch.optim.swa_utils, for an average; torch.nn.utils.get_total_norm for a norm. Or do it "
    "every tenth step.",
)
HISTOGRAMS = _row(
    "histograms",
    what="histograms or figures are made in the steps",
    sentence="histograms or figures are made in the steps, which takes {needless} of a step.",
    removal="them",
    remedy="Make them every hundredth step.",
)
FRAME_ROW = _row(
    "row_of_frame",
    kind=BottleneckKind.INPUT_BOUND,
    what="each sample takes a row out of a pandas frame",
    sentence="each sample takes its row out of a pandas frame on its own, which takes {needless} "
    "of a step.",
    explanation="Workers would only hide that.",
    removal="that work",
    remedy="Take the columns out as arrays once, in __init__ (frame[columns].to_numpy()), and "
    "index these in __getitem__.",
)
FILE_CHUNK = _row(
    "chunk_of_file",
    kind=BottleneckKind.INPUT_BOUND,
    what="each sample is read from an HDF5 file on its own",
    sentence="each sample is read from an HDF5 file on its own, which takes {needless} of a step.",
    explanation="Where the file is stored in chunks, each read fetches and decompresses a whole "
    "chunk.",
    removal="these reads",
    remedy="Store chunks of one or a few rows, read in the order of the chunks, or give the file "
    "a larger chunk cache (rdcc_nbytes).",
)
GROWS = replace(
    _row(
        "grows",
        what="a function between the phases of a step takes longer from step to step",
        sentence="{function} takes longer from step to step: about {at_first} in the first steps "
        "and {at_last} in the last; together {needless} of all steps' time.",
        removal="it",
        remedy="Look at what it goes through again in each step: a metric that is never reset "
        "computes over all that came (reset it at the end of each epoch, or keep sums).",
    ),
    rule=find_growing,
    removal=Removal(condition="Without it", parts={}, whole="steps"),
    thresholds=(MIN_SEEN, MIN_GROWTH, *SCALE),
)
_NEEDLESS = (COLLECTS, EMPTIES, TENSORS, WEIGHTS, HISTOGRAMS, FRAME_ROW, FILE_CHUNK)
_BY_CODE = {row.cause or "": row for row in _NEEDLESS}
AILMENTS = (*_NEEDLESS, GROWS)
