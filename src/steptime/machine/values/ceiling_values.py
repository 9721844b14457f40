"""What a machine reaches: its measured ceilings, and how far each can be relied on.

Frozen values that survive JSON. A ceiling that was not measured has no rate and says why. A ceiling
with doubts is provisional: it is shown, and nothing is judged by it. `machine.ceiling_state` knows
what raises a doubt.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.devices.accelerators import Accelerator
from steptime.core.devices.hardware import find_accelerator
from steptime.core.devices.machine_condition import MachineCondition
from steptime.core.interval import Interval
from steptime.core.schema import SCHEMA

QUIET_CORES = 0.1
"""Cores of others below which a machine is quiet: wall times then agreed with an idle one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a rate was measured at.

    Attributes:
        shape: m, n and k of a product of (m, k) and (k, n).
        layout: `nn`, or `nt` where the second one is stored as (n, k), as a layer stores it.
        payload_bytes: of one copy, message or read; of `copy` and `triad` all arrays together.
        num_threads: of the processor, at work on it.
    """

    shape: tuple[int, ...] | None = None
    layout: str | None = None
    payload_bytes: int | None = None
    num_threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting of a search and its rate, the median of a few repetitions.

    Attributes:
        setting: what it was measured at.
        rate: median of a few repetitions.
    """

    setting: Setting
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingState:
    """What was seen while a ceiling was measured, and why it may be too low.

    Attributes:
        doubts: why the ceiling is provisional, as machine words; none of them means that it is
            firm. `others_busy`: other programs used cores, or the memory, that were wanted.
            `stolen`: the hypervisor gave the cores to others. `throttled`: the cores became too
            hot. `device_busy`: others used the GPU. `spread`: the repetitions differ too much.
            `below_others`: another ceiling of the same device makes it impossible.
            `above_datasheet`, `below_datasheet`: the device cannot do so much, or can do several
            times as much. `exceeded`: a run reached more. `other_state`: the machine's state
            (cores, quota, clock, power limit, MIG) was another one than in the run.
        stolen_cores: cores that the hypervisor took in that time; None where not known.
        num_throttles: how often a core was slowed down for its heat then; None where the
            system does not say.
        spread_fraction: by how much the median repetition is below the fastest one.
        device_busy_fraction: share of its time in which the GPU worked before the measuring began.
        exceeded_rate: a higher rate that a run reached, in the unit of the ceiling.
    """

    doubts: tuple[str, ...] = ()
    stolen_cores: float | None = None
    num_throttles: int | None = None
    spread_fraction: float | None = None
    device_busy_fraction: float | None = None
    exceeded_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that was reached at one kind of work.

    Attributes:
        kind: `matmul`, `copy`, `triad`, `h2d`, `d2h`, `disk_sequential`, `disk_random`,
            `all_reduce`, `all_gather` or `reduce_scatter`.
        device: `cpu`, `cuda:0`, `disk`, or for collectives the backend (`gloo`, `nccl`).
        variant: `memory` or `cache`; `pinned` or `pageable`; `direct` or `warm`.
        dtype: of what is multiplied or sent.
        unit: `flops_per_s`, `ops_per_s` (of whole numbers), `bytes_per_s` or `reads_per_s`.
        rate: median over `n` repetitions at the best setting, made after the search chose it.
        best_rate: of the fastest repetition.
        setting: the best one.
        num_ranks: of a collective.
        points: all settings that were tried.
        others_cores: cores that other processes kept busy in that time; None where not known.
        state: what else was seen in that time, and the doubts that make the ceiling provisional.
        missing: why there is no rate, a machine word.
        detail: the words of what failed.
    """

    kind: str
    device: str
    unit: str
    variant: str | None = None
    dtype: str | None = None
    rate: Interval | None = None
    best_rate: float | None = None
    setting: Setting | None = None
    num_ranks: int | None = None
    points: tuple[Point, ...] = ()
    others_cores: float | None = None
    state: CeilingState = CeilingState()
    missing: str | None = None
    detail: str | None = None

    @property
    def fastest_rate(self) -> float | None:
        """Return the rate of the fastest repetition, if there is any: it was disturbed least."""
        if self.best_rate:
            return self.best_rate
        return self.rate.estimate if self.rate is not None and self.rate.estimate > 0 else None

    @property
    def is_provisional(self) -> bool:
        """Return whether nothing may be judged by this rate, because it may be too low."""
        return bool(self.state.doubts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchProcess:
    """The process that measured.

    Attributes:
        python: path of the interpreter.
        python_version: version of the interpreter.
        torch_version: version of its torch.
        num_threads: of the processor, given to torch.
        num_cores: on which the load of others was measured.
        wait_policy: how its idle threads waited, a word of OpenMP.
        device_names: of the GPUs, as torch names them.
        device_bytes, num_multiprocessors: memory [bytes] and compute units of each GPU.
        cuda_version: that torch was built for.
    """

    python: str
    python_version: str
    torch_version: str
    num_threads: int
    num_cores: int
    wait_policy: str
    device_names: tuple[str, ...] = ()
    device_bytes: tuple[int, ...] = ()
    num_multiprocessors: tuple[int, ...] = ()
    cuda_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What was measured of the machine at one time.

    Attributes:
        fingerprint: of the machine, the interpreter and its torch.
        measured_unix_s: when the measuring began [s since 1970].
        took_s: how long it took.
        budget_s: how long it was allowed to take.
        bench: what measured; None where nothing could.
        ceilings: one for each kind, device and type.
        is_partial: the time was up, or it was interrupted, before all was measured.
        missing: why there are no ceilings at all, a machine word.
        detail: the words of what failed.
        condition: the state of the machine in that measurement.
        retaken_unix_s: when an older version took provisional ones again [s since 1970].
        schema: version of the record.
    """

    fingerprint: str
    measured_unix_s: float
    took_s: float
    budget_s: float
    bench: BenchProcess | None = None
    ceilings: tuple[Ceiling, ...] = ()
    is_partial: bool = False
    missing: str | None = None
    detail: str | None = None
    condition: MachineCondition | None = None
    retaken_unix_s: float | None = None
    schema: int = SCHEMA


def find_part(bench: BenchProcess, device: str) -> Accelerator | None:
    """Return the datasheet's row of a GPU such as `cuda:0`; None where it is not known."""
    kind, _, number = device.partition(":")
    at = int(number) if kind == "cuda" and number.isdecimal() else len(bench.device_names)
    if at >= len(bench.device_names):
        return None
    sizes, units = bench.device_bytes, bench.num_multiprocessors
    return find_accelerator(
        bench.device_names[at],
        memory_bytes=sizes[at] if at < len(sizes) else None,
        num_multiprocessors=units[at] if at < len(units) else None,
    )
