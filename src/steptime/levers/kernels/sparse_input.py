"""An input that is mostly zeros, such as a bag of words, is multiplied by what is not zero alone.

A matrix that comes again unchanged, in each step of a training on one graph, is kept in compressed
rows: its products in the forward and the backward, and a dropout of it, take the numbers that are
not zero. Anything else that reads it finds the whole matrix. A dropout draws as many random numbers
as there are numbers to drop, so the training has other draws of the same distribution.

Source: the layout torch.sparse_csr and torch.nn.EmbeddingBag of torch; Kipf and Welling, Semi-
Supervised Classification with Graph Convolutional Networks (2017), keep their features so. To do it
to a script that runs is our own.
"""

from __future__ import annotations

import functools

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.draws import numeric_without_draws
from .zero_rows import MIN_ZEROS, KnownMatrices, read_by_rows

known_of = functools.cache(KnownMatrices)
"""What came is known while the lever is off, too, so as not to be looked at again."""


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cpu":
        return f"It has not been tested on {facts.device}."
    if facts.uses_compile:
        return "The script compiles its model, and compiled code multiplies the whole matrix."
    if facts.zero_fraction is None:
        return None
    if facts.zero_fraction < MIN_ZEROS:
        return (
            f"Models are not called with one and the same matrix in each step that is at least "
            f"{MIN_ZEROS:.0%} zeros."
        )
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Keep such matrices by what is not zero, from the second time on that they come."""
    return read_by_rows(session.torch, known_of(session.torch))


LEVER = Lever(
    name="sparse_input",
    title="Multiply an input that is mostly zeros by what is not zero alone.",
    relieves=("COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND"),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.STATISTICAL,
    when=(
        "In each step a model is called with the same matrix in float32, of 65,536 numbers or "
        "more, at least 95 % of them zeros, and the first to read it is a product or a dropout: "
        "the features of a graph's nodes as a bag of words, or its adjacency as a dense matrix."
    ),
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    class_here=numeric_without_draws,
    apply=apply,
    edit=lambda settings: (
        "rows = x.to_sparse_csr()  # once, before the loop; nn.Linear takes it\n\n\n"
        "def dropped(rows, p, training):  # in place of F.dropout(x, p, training)\n"
        "    values = F.dropout(rows.values(), p, training)\n"
        "    return torch.sparse_csr_tensor(\n"
        "        rows.crow_indices(), rows.col_indices(), values, rows.shape\n"
        "    )"
    ),
    costs=(
        "Forty bytes for each number that is not zero. Whether the matrix has changed is known by "
        "torch's own count of changes and by the numbers that were not zero: a new number where a "
        "zero was, written past torch (through NumPy or `.data`), is not seen. Where a layer needs "
        "the whole matrix after the dropout, it is filled again in each step, which may be slower."
    ),
    source="https://docs.pytorch.org/docs/stable/sparse.html#sparse-csr-tensor",
)
