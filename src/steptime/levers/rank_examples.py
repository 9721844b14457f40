"""Example trainings on several ranks, for `examples.py`."""

from __future__ import annotations

import dataclasses

from steptime.levers.base import ExchangeFacts, Facts, LoaderFacts

RANKS = Facts(
    torch_version="2.9.0",
    num_cores=8,
    world_size=4,
    parameter_dtypes=("float32",),
    exchanges=(
        ExchangeFacts(
            gradient_bytes=400 << 20,
            gradient_dtypes=("float32",),
            backend="gloo",
            finds_unused=True,
            can_be_static=True,
            exchanges_per_update=4,
        ),
    ),
)
"""Four ranks on a CPU that exchange gradients in each of four backward passes of an update."""

DEVICES = dataclasses.replace(
    RANKS,
    device="cuda",
    capabilities=("sm_90",),
    num_nodes=2,
    has_infiniband=True,
    exchanges=tuple(dataclasses.replace(one, backend="nccl") for one in RANKS.exchanges or ()),
    loaders=(LoaderFacts(dataset="ImageFolder", num_workers=4, batch_size=32),),
)
"""The same on the devices of two machines."""
