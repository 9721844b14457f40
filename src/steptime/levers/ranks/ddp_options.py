"""How DistributedDataParallel packs gradients into buckets, and what it searches in each step.

Gradients that lie in the buckets themselves are not copied to be sent and back. Larger buckets are
sent less often, smaller ones earlier. A static graph is searched once instead of in each step.

Source: torch.nn.parallel.DistributedDataParallel; Li et al., PyTorch Distributed (VLDB 2020), 3.2.
"""

from __future__ import annotations

from ..base import ExchangeFacts, Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .ddp import all_exchanges, make_with, why_no_exchange

MIB = 1 << 20
BUCKETS_MIB = (4, 100)
"""Beside torch's own 25: some that are sent earlier, and some that are sent less often."""

VIEW: Settings = {"gradient_as_bucket_view": True}


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    reason = why_no_exchange(facts)
    if reason is not None:
        return reason
    if any(one.is_uneven for one in all_exchanges(facts)):
        return "Its ranks may have different numbers of batches (`join`)."
    return None if space(facts) else "Its exchange has these options already."


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return views of the buckets, alone, with a static graph, and with other sizes."""
    found = all_exchanges(facts)
    if facts.exchanges is not None and not found:
        return ()
    rows: list[Settings] = [] if found and all(one.has_bucket_view for one in found) else [VIEW]
    if any(is_worth_a_static_graph(one) for one in found):
        rows.append({**VIEW, "static_graph": True})
    sizes = [size for size in BUCKETS_MIB if any(changes(one, size * MIB) for one in found)]
    return tuple(rows + [{**VIEW, "bucket_cap_mb": size} for size in sizes])


def is_worth_a_static_graph(exchange: ExchangeFacts) -> bool:
    """Return whether each step is searched for what torch says is the same in all of them."""
    return exchange.finds_unused and not exchange.is_static and exchange.can_be_static is True


def changes(exchange: ExchangeFacts, size: int) -> bool:
    """Return whether buckets of that size [bytes] would be more or fewer."""
    total = exchange.gradient_bytes
    return -(-total // size) != -(-total // max(1, exchange.bucket_bytes))


def class_here(facts: Facts, settings: Settings) -> Preserves | None:
    """A sum of two is the same in whatever bucket; of more ranks, its order may be another one."""
    is_exact = facts.world_size == 2 or set(settings) == set(VIEW)
    return Preserves.EXACT if is_exact else None


def apply(settings: Settings, session: Session) -> Undo:
    """Give the options to each DistributedDataParallel as it is made."""
    return make_with(session, options(settings))


def options(settings: Settings) -> Settings:
    """Return the arguments; torch warns of a search beside a static graph."""
    is_static = bool(settings.get("static_graph"))
    return {**settings, **({"find_unused_parameters": False} if is_static else {})}


def edit(settings: Settings) -> str:
    """Return the arguments."""
    words = ", ".join(f"{name}={value}" for name, value in options(settings).items())
    return f"model = DistributedDataParallel(model, ..., {words})"


LEVER = Lever(
    name="ddp_options",
    title="Let DistributedDataParallel keep gradients in its buckets, and choose their size.",
    relieves=("COMMUNICATION_BOUND",),
    phases=("backward", "communication"),
    preserves=Preserves.NUMERIC,
    class_here=class_here,
    when="Several ranks exchange gradients by DistributedDataParallel. The graph becomes static "
    "where the script looks for unused parameters in each step and torch found the same ones in "
    "all.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="A larger bucket is sent later. Gradients in buckets cannot be detached in place. With a "
    "static graph, a step that uses other parameters fails or leaves their gradients local.",
    source="https://docs.pytorch.org/docs/stable/generated/"
    "torch.nn.parallel.DistributedDataParallel.html",
)
