"""Names a timeline's sums by their place: buckets of time, then counts, then pending time.

The head of the rank's file holds the names (docs/internals/run-folder.md).
"""

from __future__ import annotations

BUCKETS = (
    "other",
    "input_wait",
    "fetch",
    "collate",
    "h2d",
    "forward",
    "loss",
    "backward",
    "gradient_processing",
    "communication",
    "optimizer",
    "sync",
    "forward_and_loss",
    "rollout",
    "process_wait",
    "evaluation",
    "checkpoint",
    "epoch_start",
    "compile",
)
(
    OTHER,
    INPUT_WAIT,
    FETCH,
    COLLATE,
    H2D,
    FORWARD,
    LOSS,
    BACKWARD,
    GRADIENT_PROCESSING,
    COMMUNICATION,
    OPTIMIZER,
    SYNC,
    FORWARD_AND_LOSS,
    ROLLOUT,
    PROCESS_WAIT,
    EVALUATION,
    CHECKPOINT,
    EPOCH_START,
    COMPILE,
) = range(len(BUCKETS))

COUNTS = (
    "batches",
    "copies",
    "syncs",
    "forwards",
    "backwards",
    "inner_steps",
    "gc_pauses",
    "gc_ns",
    "gc_full",
    "prepare_ns",
    "input_rows",
    "input_elements",
    "input_squares",
    "graph_nodes",
    "plain_elements",
    "trained_elements",
    "largest_elements",
)
(
    BATCHES,
    COPIES,
    SYNCS,
    FORWARDS,
    BACKWARDS,
    INNER_STEPS,
    GC_PAUSES,
    GC_NS,
    GC_FULL,
    PREPARE_NS,
    INPUT_ROWS,
    INPUT_ELEMENTS,
    INPUT_SQUARES,
    GRAPH_NODES,
    PLAIN_ELEMENTS,
    TRAINED_ELEMENTS,
    LARGEST_ELEMENTS,
) = range(len(BUCKETS), len(BUCKETS) + len(COUNTS))

SIZES = COUNTS[INPUT_ROWS - len(BUCKETS) :]
"""What work and memory of an update go by (`guest/count/sizes.py`): these counts, in this order."""

PENDING = ("after_forward", "after_backward", "closure_head", "closure_tail", "acting")
AFTER_FORWARD, AFTER_BACKWARD, CLOSURE_HEAD, CLOSURE_TAIL, ACTING = range(
    len(BUCKETS) + len(COUNTS), len(BUCKETS) + len(COUNTS) + len(PENDING)
)

NUM_BUCKETS = len(BUCKETS)
NUM_WRITTEN = NUM_BUCKETS + len(COUNTS)
SIZE = NUM_WRITTEN + len(PENDING)
ZEROS = (0,) * SIZE
SPANS_KEPT = frozenset((EVALUATION, CHECKPOINT, COMPILE))
EVALUATED = tuple(i for i in range(SIZE) if i not in SPANS_KEPT)
