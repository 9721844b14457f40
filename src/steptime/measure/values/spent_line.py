"""The lines of the script that take the time of its steps, as values of a Measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.measure.values.observations import place_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentLine:
    """A line of the script that a step's time goes to, by sampled stacks.

    Attributes:
        what: the phase that was open: `other` between two phases.
        file: the file, relative to the command's folder where it lies below that folder.
        line: the line.
        function: the function that it is in.
        callee: the function of a library that it was in most, as `pandas.core.frame.…`; empty
            where it had called none in Python.
        fraction: share of the time of all steps.
        num_samples: samples that were taken there.
        growth: how its time grew over the run: 0 where each update took alike, 1/3 where it grew
            in proportion to the updates so far.
        code: what the source shows there, as a machine word: `collects_garbage`,
            `empties_cache`, `tensor_of_arrays`, `weights_one_by_one`, `histograms`,
            `row_of_frame` or `chunk_of_file`; None where it shows none of them.
        text: the line as it is in the file; None if it could not be read.
    """

    what: str
    file: str
    line: int
    function: str
    callee: str
    fraction: float
    num_samples: int
    growth: float
    code: str | None = None
    text: str | None = None

    @property
    def place(self) -> str:
        """`train.py:31`."""
        return place_text(self.file, self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentTime:
    """Where the time of the steps goes, line by line, from stacks sampled over the whole run.

    Attributes:
        num_samples: samples within steps.
        num_updates: updates that were made until the last one.
        step_s: mean time of an update in them, without spans [s].
        without_line: share of the steps' time that has no line of the script or of a library.
        lines: the lines, the longest first.
        libraries: share of the steps' time in functions of each library, by the package of the
            innermost one, with the operators that it calls.
    """

    num_samples: int
    num_updates: int
    step_s: float
    without_line: float
    lines: tuple[SpentLine, ...] = ()
    libraries: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkAgain:
    """A frozen module or a data set whose rows come again, bit for bit.

    Attributes:
        what: `module`, `part` (of a model that trains) or `data_set`.
        name: its class; of a part, the model's class and the path to it.
        calls_per_step: calls of the module or part, or batches, in a mean step.
        s_per_call: mean wall time of a call of the module [s]; 0 for a data set.
        num_rows: rows that were looked at.
        num_distinct: different rows among them; an estimate where there are many.
        kept_bytes: what the results of the different rows take, or these rows [bytes].
        where: the line that calls it; None for a data set.
        text: that line.
    """

    what: str
    name: str
    calls_per_step: float
    s_per_call: float
    num_rows: int
    num_distinct: int
    kept_bytes: int
    where: str | None = None
    text: str | None = None
