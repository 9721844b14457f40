"""Finds the first step and module at which two runs with checksums part.

In: two runs of `steptime run --checksums`. Out: a `FirstDifference`. Within a step, what is made
first is compared first; of the gradients, which are made backward, the last weight is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.compare.values import FirstDifference
from steptime.core.codec import from_json
from steptime.core.store import Run
from steptime.errors import NotFoundError
from steptime.record import files
from steptime.record.lines import read_lines

Rows = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptStep:
    """The checksums of one step; `before` is of the weights from which it starts."""

    n: int
    batch: int
    loss: tuple[str, ...] = ()
    outputs: Rows = ()
    before: Rows = ()
    gradients: Rows = ()
    weights: Rows = ()


def find_first_difference(a: Run, b: Run) -> FirstDifference:
    """Return where two runs part, or that they are the same in all steps that both kept.

    Raises:
        NotFoundError: a run has no checksums, or no rank and step is in both.
    """
    of_a, of_b = _read(a), _read(b)
    both = sorted((step, rank) for rank, step in of_a.keys() & of_b.keys())
    if not both:
        raise NotFoundError(
            f"runs {a.run_id} and {b.run_id} share no step with checksums.",
            hint="Run the same number of ranks: steptime run --checksums -- COMMAND",
        )
    steps: list[int] = []
    for step, rank in both:
        steps += [step] if step not in steps else []
        found = next(_differences(of_a[rank, step], of_b[rank, step]), None)
        if found is not None:
            what, module = found
            return FirstDifference(
                steps=tuple(steps),
                step=step,
                same_until=steps[-2] if len(steps) > 1 else None,
                what=what,
                module=module,
                rank=rank,
            )
    return FirstDifference(steps=tuple(steps))


def _read(run: Run) -> Mapping[tuple[int, int], _KeptStep]:
    """Return the checksums of a run by rank and step."""
    found = {}
    for path in sorted(run.folder.glob(files.CHECKSUMS)):
        rank = _rank_of(path)
        for line in read_lines(path):
            kept = from_json(_KeptStep, line)
            found[rank, kept.n] = kept
    if not found:
        raise NotFoundError(
            f"run {run.run_id} has no checksums.",
            hint="Make both runs with them: steptime run --checksums -- COMMAND",
        )
    return found


def _rank_of(path: Path) -> int:
    number = path.stem.partition("-")[2]
    return int(number) if number.isdigit() else 0


def _differences(a: _KeptStep, b: _KeptStep) -> Iterator[tuple[str, str]]:
    """Yield what differs in a step and the module, in the order in which a step makes it."""
    yield from _of_rows("before", a.before, b.before)
    if a.batch != b.batch:
        yield "batch", ""
    yield from _of_rows("outputs", a.outputs, b.outputs)
    if a.loss != b.loss:
        yield "loss", ""
    yield from _of_rows("gradients", a.gradients[::-1], b.gradients[::-1])
    yield from _of_rows("weights", a.weights, b.weights)


def _of_rows(what: str, a: Sequence[tuple[str, int]], b: Rows) -> Iterator[tuple[str, str]]:
    """Yield the names whose checksums differ; nothing where one run kept none, or others."""
    if [name for name, _ in a] == [name for name, _ in b]:
        for (name, one), (_, other) in zip(a, b, strict=True):
            if one != other:
                yield what, name
    elif a and b and ("" in dict(a)) == ("" in dict(b)):  # other modules, not another level
        names = {name for name, _ in b}
        yield what, next((name for name, _ in a if name not in names), a[0][0])
