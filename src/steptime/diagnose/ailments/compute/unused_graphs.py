"""The ailment of models that are called with gradients that no backward call uses.

In: a Measurement with the nodes of autograd's graphs in one early step. Out: a finding. Calls alone
do not tell: a policy's calls of a whole episode may all lead to one backward.
"""

from __future__ import annotations

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import count, make_finding, share, site_of
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement

MIN_NODES = Threshold(
    name="MIN_NODES",
    value=10,
    why="a metric that is computed beside the loss makes some nodes, and costs next to nothing",
)
MIN_UNUSED = Threshold(
    name="MIN_UNUSED",
    value=2 / 3,
    why="twice as many as are used: metrics with gradients make fewer, and so do Functions of the "
    "script's own in an evaluation, which make a node even without gradients",
)


def find_unused_graphs(measurement: Measurement) -> Finding | None:
    """No bottleneck: most of what was noted for backward calls was part of none."""
    seen = measurement.operators
    if seen is None or seen.num_nodes is None or seen.num_nodes_used is None:
        return None
    num_unused = seen.num_nodes - seen.num_nodes_used
    if num_unused < max(MIN_NODES.value, MIN_UNUSED.value * seen.num_nodes):
        return None
    return make_finding(
        UNUSED_GRAPHS,
        severity=Severity.INFO,
        evidence=(
            share("unused_nodes", num_unused / seen.num_nodes),
            count("num_unused_nodes", num_unused),
            count("num_nodes", seen.num_nodes),
        ),
        site=site_of(measurement, "rollout"),
    )


UNUSED_GRAPHS = Ailment(
    cause="unused_graphs",
    what="models are called with gradients that no backward call uses",
    needs="the graphs of one eager step",
    rule=find_unused_graphs,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(MIN_NODES, MIN_UNUSED),
    title="gradients for nothing",
    sentence="{num_unused_nodes} of {num_nodes} operators that autograd noted in a step were part "
    "of no backward call: a model is called with gradients that are never used.",
    explanation="What is noted costs time at each operator, and holds its inputs in memory.",
    remedy="Call the model that acts, or that makes targets, under torch.inference_mode().",
    when_contended=by_facts("Operators are counted."),
)
AILMENTS = (UNUSED_GRAPHS,)
