"""Asks a lever itself whether what a run showed speaks against it.

In: a lever's name and a Measurement. Out: whether the lever may apply. A run shows less than the
trials of a study, so a lever that refuses without any facts is not asked.
"""

from __future__ import annotations

from steptime import levers
from steptime.diagnose.ailments.compute.computing import CAN_FUSE
from steptime.levers.base import Facts, OptimizerFacts
from steptime.measure.values.measurement import Measurement

MANY_CORES = 64
"""Where the cores are not known, no lever is refused for their number."""


def speaks_against(lever: str, measurement: Measurement) -> bool:
    """Return whether a lever refuses by what the run showed, and not because facts are missing."""
    if not measurement.ranks:
        return False
    applies, facts = levers.load(lever).applies, _facts_of(measurement)
    nothing = Facts(torch_version=facts.torch_version, num_cores=MANY_CORES)
    return applies(nothing) is None and applies(facts) is not None


def _facts_of(measurement: Measurement) -> Facts:
    rank, host, found = measurement.ranks[0], measurement.host, measurement.compilation
    in_use = () if measurement.recipe is None else measurement.recipe.levers
    is_own = found is not None and not any(one.name == "compile" for one in in_use)
    return Facts(
        torch_version=rank.torch_version,
        device=rank.device,
        capabilities=rank.capabilities,
        num_cores=MANY_CORES if host is None else host.num_cores,
        num_threads=rank.num_threads,
        world_size=rank.world_size,
        uses_compile=bool(found.num_graphs) if found and is_own else None,
        optimizers=tuple(
            OptimizerFacts(name=name, can_fuse=name in CAN_FUSE) for name in rank.optimizers
        )
        or None,
    )
