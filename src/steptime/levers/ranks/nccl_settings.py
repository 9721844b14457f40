"""NCCL's switches for exchanges between devices, each with its condition. Untested on a device.

NCCL chooses algorithms and protocols by a model of the links. It knows little of what else the
machine does, and nothing of what the training overlaps. Each switch here has a place where it is
known to help; nothing is set that the user or the launcher set.

Source: NVIDIA NCCL documentation, "Environment Variables"; ml-engineering (Bekman), network.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base import Facts, Lever, Moment, Preserves, Settings
from .ddp import all_exchanges

SWITCHES: Mapping[str, Mapping[str, str]] = {
    "large_buffers": {"NCCL_BUFFSIZE": str(8 << 20)},
    "few_channels": {"NCCL_MAX_CTAS": "8"},
    "low_latency": {"NCCL_PROTO": "LL128,Simple"},
    "sockets": {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"},
    "queue_pairs": {"NCCL_IB_QPS_PER_CONNECTION": "4"},
}
"""Buffers of 8 MiB for large messages; fewer thread blocks, so that arithmetic keeps its own; the
protocol for NVLink kept, that for small messages left out; more sockets where several nodes have no
InfiniBand; more queue pairs where they have."""

LARGE_BYTES = 100 << 20
"""Gradients from which the time goes into bandwidth rather than into the start of messages."""

CONDITIONS: Mapping[str, str] = {
    "large_buffers": "gradients of 100 MiB or more",
    "few_channels": "one node, gradients of 100 MiB or more",
    "low_latency": "an H100 or newer, or an A100",
    "sockets": "several nodes without InfiniBand",
    "queue_pairs": "several nodes with InfiniBand",
}


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device != "cuda":
        return f"It is not known that NCCL exchanges anything: the training is on {facts.device}."
    if facts.world_size == 1:
        return "There is one rank, so nothing is exchanged."
    if any(one.backend not in (None, "nccl") for one in all_exchanges(facts)):
        return "The ranks do not exchange by NCCL."
    return (
        None
        if space(facts)
        else "It is not known that the condition of a switch holds that is not set."
    )


def meets(facts: Facts, name: str) -> bool:
    """Return whether the condition of a switch holds; what was not observed does not hold."""
    is_large = any(one.gradient_bytes >= LARGE_BYTES for one in all_exchanges(facts))
    if name == "large_buffers":
        return is_large
    if name == "few_channels":
        return is_large and facts.num_nodes == 1
    if name == "low_latency":
        found = [word for word in facts.capabilities or () if word[:3] == "sm_"]
        return any(int(word[3:]) >= 80 and word not in ("sm_86", "sm_89") for word in found)
    has_several = facts.num_nodes is not None and facts.num_nodes > 1
    return has_several and facts.has_infiniband is (name == "queue_pairs")


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return the switches whose condition holds and of which none is set."""
    free = [one for one in SWITCHES if not set(SWITCHES[one]) & set(facts.environment_names)]
    return tuple({"switch": name} for name in free if meets(facts, name))


def variables(settings: Settings, libraries: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of one switch."""
    return SWITCHES[str(settings["switch"])]


LEVER = Lever(
    name="nccl_settings",
    title="Set what NCCL cannot know of the machine: buffers, channels, protocols, sockets.",
    relieves=("COMMUNICATION_BOUND",),
    phases=("backward", "communication"),
    preserves=Preserves.NUMERIC,
    when="Several ranks exchange by NCCL. By switch: "
    + "; ".join(f"`{name}` with {text}" for name, text in CONDITIONS.items())
    + ".",
    applies=applies,
    space=space,
    moment=Moment.ENVIRONMENT,
    variables=variables,
    edit=lambda settings: (
        " ".join(f"{k}={v}" for k, v in SWITCHES[str(settings.get("switch", "sockets"))].items())
        + " torchrun ..."
    ),
    costs="Larger buffers take memory of the device for each channel. Not tested on a device yet.",
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
)
