"""Steps of an LSTM cell in a loop of the script, computed together by torch's LSTM.

`nn.LSTMCell` computes one step, with a dozen small operators; torch's LSTM over a sequence
multiplies all inputs at once and runs the steps in one operator. Inside modules that step a cell in
a loop, a state is computed only when it is used for anything but the next step.

Source: torch.nn.LSTM and torch.nn.LSTMCell; Appleyard et al., Optimizing Performance of Recurrent
Neural Networks on GPUs (2016). To compute late is our own.
"""

from __future__ import annotations

import functools
import weakref

from ._cells import CellFuser, find_loops, fuse_loops, replace_steps
from ._owners import Known, act_where_found
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

known: Known = weakref.WeakKeyDictionary()

fuser_of = functools.cache(CellFuser)


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cpu":
        return f"It has not been tested on {facts.device}."
    if facts.uses_compile:
        return "The script compiles its model, steps of cells with it."
    if facts.has_lstm_cell is False:
        return "No model has an LSTMCell."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Find loops in the first call of each model; compute their steps together from then on."""
    torch, fuser = session.torch, fuser_of(session.torch)
    undos = (
        act_where_found(
            session,
            known,
            lambda call: find_loops(torch, call),
            lambda owner: fuse_loops(fuser, owner),
        ),
        replace_steps(torch, fuser),
    )

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


LEVER = Lever(
    name="fused_rnn",
    title="Compute the steps of an LSTMCell in a loop together, by torch's LSTM.",
    relieves=("HOST_BOUND", "COMPUTE_BOUND"),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when=(
        "The `forward` of a module steps an LSTMCell in a loop and uses the hidden states only "
        "behind it. It is used where it agrees with the cell on the run's own numbers, gradients "
        "included; a state that is used at once, or all cell states, are computed step by step."
    ),
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=lambda settings: (
        "rnn = nn.LSTM(input_size, hidden_size)  # in place of nn.LSTMCell; the same four weights\n"
        "hidden, (h, c) = rnn(inputs, (h.unsqueeze(0), c.unsqueeze(0)))  # inputs: (steps, rows, n)"
    ),
    costs="Inputs of all steps are copied once. Gradients of gradients raise an error.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
)
