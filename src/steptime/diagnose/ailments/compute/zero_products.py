"""The ailment of a model whose first product multiplies zeros: a bag of words as a dense matrix.

In: a Measurement with an input that was looked at in one early step. Out: a finding, with the bound
that a product with a sparse matrix could give: it computes what is not zero alone.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_cpu_time, without
from steptime.diagnose.ailments.compute.compute_shares import share_of_operators
from steptime.diagnose.ailments.scale import SCALE, severity_of
from steptime.diagnose.ailments.signals import count, make_finding, share
from steptime.diagnose.values.finding import Finding
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import Site, ZeroInput


def find_zero_input(measurement: Measurement) -> Finding | None:
    """No bottleneck: work on an input that is mostly zeros takes a share of a step."""
    operators = measurement.operators
    seen = None if operators is None else operators.zero_input
    if operators is None or seen is None:
        return None
    total_s = operators.tiny_s + operators.large_s
    fraction = share_of_operators(measurement, seen.product_s, total_s)
    others = share_of_operators(measurement, seen.other_s, total_s)
    saved = (fraction + others) * seen.zero_fraction
    severity = severity_of(saved)
    if severity is None:
        return None
    found = make_finding(
        ZERO_INPUT,
        severity=severity,
        evidence=(
            share("products", fraction),
            share("zeros", seen.zero_fraction),
            count("num_rows", seen.rows),
            count("num_columns", seen.columns),
            *((share("other_operators", others),) if severity_of(others) else ()),
        ),
        fraction=saved,
        site=_place_of(seen),
    )
    module = f"{seen.module} ({seen.module_kind})" if seen.module else "code outside of modules"
    return replace(found, names={"module": module})


def _place_of(seen: ZeroInput) -> Site | None:
    if seen.file is None or seen.line is None:
        return None
    return Site(
        what="forward",
        file=seen.file,
        line=seen.line,
        end_line=seen.line,
        calls_per_step=1.0,
        s_per_step=seen.product_s,
    )


ZERO_INPUT = Ailment(
    cause="zero_input",
    what="an input that is mostly zeros is multiplied as a dense matrix",
    needs="the operators of one eager step on the CPU",
    rule=find_zero_input,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    title="mostly zeros",
    sentence="{zeros} of the input of {module}, a matrix of {num_rows} x {num_columns}, are zeros, "
    "and matmul with it takes {products} of a step.",
    explanation="Other operators on it, such as a dropout, take {other_operators} more, and would "
    "have as little to do with what is not zero.",
    removal=without("the work on zeros"),
    remedy="Keep this input sparse: `x.to_sparse_csr()` once, before the loop, which `nn.Linear` "
    "takes, with a dropout of its values alone; or sum the rows of the weights by "
    "`nn.EmbeddingBag`. Both leave the zeros out.",
    levers=("sparse_input",),
    when_contended=by_cpu_time(
        "Operators are timed in the CPU time of their thread, and compared with that of the step."
    ),
)
AILMENTS = (ZERO_INPUT,)
