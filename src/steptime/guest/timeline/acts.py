"""What may be noted in a journal, and what each note does to a timeline.

To enter a bucket, its own number is noted; all else has a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from ...record.buckets import (
    CHECKPOINT,
    EPOCH_START,
    EVALUATION,
    INPUT_WAIT,
    NUM_BUCKETS,
)
from .thread_timeline import ThreadTimeline

Act = Callable[[ThreadTimeline], None]


def _entering(bucket: int) -> Act:
    """The act that opens a marker; a span's CPU time is always taken."""
    if bucket >= EVALUATION:
        return lambda timeline: timeline.enter_span(bucket)
    return lambda timeline: timeline.enter(bucket)


_NAMED: tuple[Act, ...] = (
    ThreadTimeline.leave,
    ThreadTimeline.leave_span,
    ThreadTimeline.leave_unmoved,
    lambda timeline: timeline.enter_input(INPUT_WAIT),
    lambda timeline: timeline.enter_input(EPOCH_START),
    ThreadTimeline.leave_input,
    ThreadTimeline.enter_forward,
    lambda timeline: timeline.leave_forward(loss_inside=False),
    lambda timeline: timeline.leave_forward(loss_inside=True),
    ThreadTimeline.leave_loss,
    ThreadTimeline.enter_backward,
    ThreadTimeline.leave_backward,
    ThreadTimeline.enter_evaluation,
    ThreadTimeline.leave_evaluation,
    lambda timeline: timeline.enter_optimizer(has_closure=False),
    lambda timeline: timeline.enter_optimizer(has_closure=True),
    ThreadTimeline.leave_inner_optimizer,
    ThreadTimeline.leave_empty_step,
    ThreadTimeline.drop_optimizers,
    ThreadTimeline.enter_grad,
    ThreadTimeline.disturb,
    lambda timeline: timeline.rollout.enter_call(timeline, grows=False),
    lambda timeline: timeline.rollout.enter_call(timeline, grows=True),
    lambda timeline: timeline.rollout.leave_call(timeline),
    lambda timeline: timeline.rollout.enter_step(timeline),
    lambda timeline: timeline.rollout.enter_generation(timeline),
    lambda timeline: timeline.rollout.leave_certain(timeline),
)
(
    LEAVE,
    LEAVE_SPAN,
    LEAVE_UNMOVED,
    ENTER_INPUT,
    ENTER_EPOCH,
    LEAVE_INPUT,
    ENTER_FORWARD,
    LEAVE_FORWARD,
    LEAVE_FORWARD_WITH_LOSS,
    LEAVE_LOSS,
    ENTER_BACKWARD,
    LEAVE_BACKWARD,
    ENTER_EVALUATION,
    LEAVE_EVALUATION,
    ENTER_OPTIMIZER,
    ENTER_OPTIMIZER_WITH_CLOSURE,
    LEAVE_INNER_OPTIMIZER,
    LEAVE_EMPTY_STEP,
    DROP_OPTIMIZERS,
    ENTER_GRAD,
    DISTURB,
    ENTER_ACTING,
    ENTER_GROWING,
    LEAVE_ACTING,
    ENTER_ROLLOUT,
    ENTER_GENERATION,
    LEAVE_ROLLOUT,
) = range(NUM_BUCKETS, NUM_BUCKETS + len(_NAMED))
ACTS: tuple[Act, ...] = (*(_entering(bucket) for bucket in range(NUM_BUCKETS)), *_NAMED)
LEAVE_OPTIMIZER = len(ACTS)
SKIP_UPDATE = LEAVE_OPTIMIZER + 1
END_BY_HAND = LEAVE_OPTIMIZER + 2


ENDS: dict[int, Act] = {
    LEAVE_OPTIMIZER: lambda timeline: timeline.leave_optimizer(0, 0),
    SKIP_UPDATE: lambda timeline: timeline.skip_update(0),
    END_BY_HAND: ThreadTimeline.end_by_hand,
}
SPANS = {
    EVALUATION: EVALUATION,
    CHECKPOINT: CHECKPOINT,
    EPOCH_START: EPOCH_START,
    ENTER_EVALUATION: EVALUATION,
    ENTER_EPOCH: EPOCH_START,
}
"""The spans that are kept by their place in the code over the whole run."""
