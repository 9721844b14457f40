"""Samples neighbors in one fused pass where PyG's loaders ask pyg-lib or torch-sparse.

Loaders, batches and workers stay PyG's; only the picking and numbering is another. The same
distribution is drawn from with other random numbers. Without pyg-lib and torch-sparse PyG's own
loaders stop with an ImportError at the first batch, and with this lever they run.

Source: Mostafa et al., FastSample (2023), https://arxiv.org/abs/2311.17847.
"""

from __future__ import annotations

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .neighbor_sampling import FUSABLE, INDUCED, OTHER, REMOTE, modules, replace_sampling

WHY_NOT = {
    INDUCED: "Its neighbor loaders want all edges between sampled nodes, which is not fused.",
    REMOTE: "Its neighbor loaders read a remote graph, or sample against the edges' direction.",
    OTHER: "Its neighbor loaders have a sampler of their own.",
}


def applies(facts: Facts) -> str | None:
    """It applies where PyG's own sampler feeds training, and `steptime[graph]` is there."""
    if facts.loaders is None:
        return "The loaders were not observed, so it is not known whether neighbors are sampled."
    if not facts.loaders:
        return "No DataLoader fed the training."
    kinds = [loader.neighbor_sampling for loader in facts.loaders]
    if FUSABLE not in kinds:
        if None in kinds:
            return "It was not observed whether the loaders sample neighbors of a graph."
        reasons = [WHY_NOT[kind] for kind in kinds if kind in WHY_NOT]
        return reasons[0] if reasons else "No loader samples neighbors of a graph."
    if facts.has_numba is False or facts.has_steptime is False:
        return (
            "The script's Python has no fused sampler: install it there with `pip install "
            "'steptime[graph]'`, then it can be tried."
        )
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Let PyG's class of samplers pick and number by the fused sampler, in workers too.

    Raises:
        ImportError: the script's Python has no PyG, or no `steptime[graph]`.
    """
    pyg, graph = modules()
    return replace_sampling(pyg.NeighborSampler, graph)


LEVER = Lever(
    name="fused_sampling",
    title="Sample the neighbors of PyG's loaders in one fused pass.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "fetch"),
    preserves=Preserves.STATISTICAL,
    when=(
        "Batches come from PyG's NeighborLoader or LinkNeighborLoader over a graph in memory, and "
        "`steptime[graph]` is installed beside PyG."
    ),
    applies=applies,
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "from steptime.graph.loader import NeighborLoader  # in place of torch_geometric.loader's"
    ),
    costs="Four bytes for each node in each process that samples, and some seconds when the loops "
    "are compiled for the first time.",
    source="https://arxiv.org/abs/2311.17847",
)
