"""The inputs of PyG's hidden convolutions keep their k largest entries a row (MaxK-GNN).

The product with the graph then reads k entries an edge in place of the whole row. It is another
network: what a node hands on is cut, in evaluation too. The first convolution reads the data whole.

Source: Peng et al., MaxK-GNN, ASPLOS 2024 (arXiv 2312.08656).
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .graph_convolutions import LEAST_FACTOR, MaxKInstead, modules

KEPT = (32, 16)
"""Entries a row, the milder change first."""


def applies(facts: Facts) -> str | None:
    """It applies where wide rows pass through PyG's GCN, SAGE or GIN convolutions."""
    widths = facts.graph_widths
    if widths is None:
        return "It was not observed whether the model has convolutions on graphs."
    if not widths:
        return "The model has no GCN, SAGE or GIN convolution of PyG that sums or averages."
    if not space(facts):
        return (
            f"The rows of its convolutions have at most {max(widths)} entries; from "
            f"{LEAST_FACTOR * min(KEPT)} on it is faster to keep a part of them."
        )
    if facts.has_steptime is False:
        return (
            "The script's Python has no MaxK: install it there with `pip install "
            "'steptime[graph]'`, then it can be tried."
        )
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return how many entries may be kept."""
    widest = max(facts.graph_widths or (0,))
    return tuple({"kept": k} for k in KEPT if widest >= LEAST_FACTOR * k)


def apply(settings: Settings, session: Session) -> Undo:
    """Let PyG's classes of convolutions compute with MaxK.

    Raises:
        ImportError: the script's Python has no PyG, or no Steptime.
    """
    pyg, layers = modules()
    replaced = MaxKInstead(session.torch, layers, int(settings["kept"]), session.count)
    kinds = (pyg.GCNConv, pyg.SAGEConv, pyg.GINConv)
    undos = [replaced.put_under(kind) for kind in kinds]

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


LEVER = Lever(
    name="maxk",
    title="Keep the k largest entries of each row that PyG's hidden convolutions read (MaxK-GNN).",
    relieves=("COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND", "BALANCED"),
    phases=("forward", "backward"),
    preserves=Preserves.NOTHING,
    when="The model has GCN, SAGE or GIN convolutions of PyG over rows of 48 entries and more. It "
    "changes the training, so it is not tried unless that is allowed, and not kept without proof "
    "over seeds.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        "from steptime.graph.maxk_layers import MaxKGCNConv  # in the place of GCNConv\n\n"
        "conv = MaxKGCNConv(in_channels, out_channels, k={kept})".format(**settings)
    ),
    costs="The kernels are compiled once, in about ten seconds. Evaluate with the recipe on: "
    "without it the trained network is another one.",
    source="https://arxiv.org/abs/2312.08656",
)
