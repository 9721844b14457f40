"""Ailments of a step that arithmetic fills: which part of it takes the time.

In: a Measurement. Out: one finding, of the part with the most time; each part has a remedy of its
own. `arithmetic.py` has what measured ceilings add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steptime.diagnose.ailments.ailment import Ailment, Asked, Removal, by_cpu_time
from steptime.diagnose.ailments.compute.compute_shares import (
    OF_PHASES,
    compute_share,
    largest_of,
    parts_evidence,
    parts_of_step,
)
from steptime.diagnose.ailments.own_share import own_arithmetic
from steptime.diagnose.ailments.scale import CRITICAL_FRACTION, WARNING_FRACTION, Threshold
from steptime.diagnose.ailments.signals import (
    find_missing_signals,
    make_finding,
    share,
    site_of,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.operator_time import TimedOperator
from steptime.measure.values.observations import Site

MIN_PART = Threshold(
    name="MIN_PART",
    value=WARNING_FRACTION.value,
    why="a part of the arithmetic is named as its cause where a remedy for it alone would show",
)


MIN_LOST_FRACTION = Threshold(
    name="MIN_LOST_FRACTION",
    value=0.01,
    why="a part below one hundredth of a step is not worth naming, so it is not in the headroom",
)

CAN_FUSE = ("Adagrad", "Adam", "AdamW", "SGD")
"""Torch's optimizers that update in one kernel on each device."""


def find_compute(measurement: Measurement) -> Finding | None:
    """COMPUTE_BOUND: the arithmetic fills the step, or one part of it takes a third."""
    fraction = compute_share(measurement)
    if fraction is None:
        return None
    parts = parts_of_step(measurement)
    row = _part_to_name(parts)
    least = parts[row.cause] if row.cause else 0.0
    if fraction <= 1 - WARNING_FRACTION.value and least < CRITICAL_FRACTION.value:
        return None
    top = largest_of(measurement.count, row.cause) if row.cause else None
    finding = make_finding(
        row,
        severity=Severity.INFO,
        evidence=(share("compute", fraction), *parts_evidence(parts)),
        site=_place_of(measurement, row, top),
        missing=find_missing_signals(measurement),
    )
    if row is OPTIMIZER:
        known = {name for rank in measurement.ranks for name in rank.optimizers}
        is_fused = not known or not known.isdisjoint(CAN_FUSE)
        return replace(finding, names={"update": "one_kernel" if is_fused else "few_calls"})
    if top is None:
        return finding
    module = f"{top.module} ({top.module_kind})" if top.module else "code outside of modules"
    return replace(finding, names={"operator": top.name.rpartition(".")[2], "module": module})


def _place_of(measurement: Measurement, row: Ailment, top: TimedOperator | None) -> Site | None:
    """Return the line of a phase, or that from which the named module calls the operator most."""
    if row.cause in OF_PHASES:
        return site_of(measurement, row.cause)
    operators = measurement.operators
    if top is None or operators is None:
        return None
    key = top.name, top.module
    found = next((one for one in operators.places if (one.name, one.module) == key), None)
    if found is None:
        return None
    return Site(
        what="forward",
        file=found.file,
        line=found.line,
        end_line=found.line,
        calls_per_step=found.num,
        s_per_step=found.time_s,
    )


def _part_to_name(parts: Mapping[str, float]) -> Ailment:
    """Return the row of the part to act on; that of all arithmetic if none stands out.

    It is the part with the most time. A third of a step for which there is a remedy of its own
    comes before matmul, which is what a model is for.
    """
    own = {row.cause: row for row in AILMENTS if row.cause}
    found = max((name for name in parts if name in own), key=lambda name: parts[name], default="")
    most = parts.get(found, 0.0)
    is_apart = found in _APART and most >= CRITICAL_FRACTION.value
    is_most = most >= max(MIN_PART.value, parts.get("products", 0.0))
    return own[found] if is_most or is_apart else COMPUTE


_APART = (*OF_PHASES, "random_numbers")
"""Parts that no remedy for matmul makes shorter."""

_BY_TIME = (
    "By time, matmul and convolution take {products} of a step, elementwise operators "
    "{elementwise}, dropout and random numbers {random_numbers}, embedding or gather {lookups} and "
    "the optimizer {optimizer}."
)
_REMOVAL = Removal(
    condition="With the arithmetic",
    parts={
        "precision": "in {dtype}",
        "threads": "on all threads of the machine",
        "recomputation": "done only once",
        "shape": "in shapes that reach the machine's ceiling",
    },
    whole="step",
)
_CONTENDED = by_cpu_time(
    "The arithmetic must have more than four fifths of the CPU time as well, or the named part a "
    "third of it, and must have used a core for a tenth of its time: else it slept.",
    own_arithmetic,
)
LEVERS = (
    *("autocast", "compile", "fused_attention", "fused_rnn", "fused_gelu", "channels_last"),
    *("cudnn_benchmark", "fused_optimizer", "num_threads", "needed_gradients"),
    *("matmul_precision", "matmul_library", "module_precision", "allocator", "wait_policy"),
    *("no_checkpointing", "interpreter", "sparse_input", "wide_convolutions"),
)
"""Levers on the arithmetic as a whole."""

COMPUTE = Ailment(
    kind=BottleneckKind.COMPUTE_BOUND,
    what="the arithmetic fills the step",
    needs="the six compute phases; operators by time; measured ceilings for the headroom",
    rule=find_compute,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(WARNING_FRACTION, MIN_LOST_FRACTION),
    sentence="the phases from the forward pass to the optimizer take {compute} of a step.",
    explanation=_BY_TIME,
    removal=_REMOVAL,
    remedy="Make the arithmetic cheaper (torch.compile, 16 bits if fast).",
    levers=LEVERS,
    when_contended=_CONTENDED,
)


def _part_row(
    *, cause: str, what: str, sentence: str, remedy: str, levers: tuple[str, ...] = ()
) -> Ailment:
    """Return the row of one part of the arithmetic, which is judged as all of it is."""
    return replace(
        COMPUTE,
        cause=cause,
        what=what,
        needs="the six compute phases; operators by time",
        thresholds=(MIN_PART, CRITICAL_FRACTION),
        sentence=sentence,
        remedy=remedy,
        levers=levers,
    )


OPTIMIZER = _part_row(
    cause="optimizer",
    what="the optimizer's update takes more of the step than any other part, or a third of it",
    sentence="the optimizer's update takes {optimizer} of a step; all arithmetic takes {compute}.",
    remedy="{update}, or update less often, with larger batches.",
    levers=("fused_optimizer", "num_threads", "allocator", "wait_policy"),
)
GRADIENTS = _part_row(
    cause="gradient_processing",
    what="what is done to gradients before the update takes more of the step than any other part, "
    "or a third of it",
    sentence="what is done between backward and the update (clipping, or other work on gradients) "
    "takes {gradient_processing} of a step; all arithmetic takes {compute}.",
    remedy="Handle all gradients in one call (`clip_grad_norm_` with `foreach=True`), instead of "
    "each parameter in a loop, and read norms (`.item()`) only where they are logged.",
)
RANDOM_NUMBERS = _part_row(
    cause="random_numbers",
    what="dropout and random numbers take more of a step than matmul, or a third of it",
    sentence="dropout and random numbers take {random_numbers} of a step, led by "
    "{operator} in {module}; all arithmetic takes {compute}.",
    remedy="Draw fewer of them: drop out after the first layer, where the data is smaller, or only "
    "what is not zero. torch.compile draws them inside of fused kernels.",
    levers=("compile", "num_threads"),
)
ELEMENTWISE = _part_row(
    cause="elementwise",
    what="elementwise operators (activations, norms, copies) take more of the step than matmul",
    sentence="elementwise operators take {elementwise} of a step, led by {operator} in "
    "{module}; all arithmetic takes {compute}.",
    remedy="Let torch.compile fuse them, so that each value is read and written once.",
    levers=(
        *("compile", "fused_gelu", "fused_attention", "fused_rnn", "channels_last"),
        *("num_threads", "allocator", "autocast"),
    ),
)
LOOKUPS = _part_row(
    cause="lookups",
    what="embedding or gather, and sums by index (graphs), take more of the step than matmul",
    sentence="embedding or gather, and sums by index, take {lookups} of a step, led by "
    "{operator} in {module}; all arithmetic takes {compute}.",
    remedy="Gather fewer rows: a product with a sparse matrix sums over the edges of a graph "
    "without writing one row for each, and rows that are needed twice can be gathered once.",
    levers=("compile", "num_threads", "autocast"),
)
AILMENTS = (COMPUTE, OPTIMIZER, GRADIENTS, RANDOM_NUMBERS, ELEMENTWISE, LOOKUPS)

SAME_PHASES = (COMPUTE.cause, ELEMENTWISE.cause, LOOKUPS.cause)
"""Causes that a finding on the host, or on memory, explains better."""
