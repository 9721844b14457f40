"""Every threshold of the rules with its reason, as in docs/explanation/diagnosis.md."""

from __future__ import annotations

INFO_FRACTION = 0.10
"""Least share reported: headroom 1.11x; quiet step times alone scatter by 3 to 16 %."""

WARNING_FRACTION = 0.20
"""Headroom 1.25x: more than the noise of one run, so that a remedy can be shown to work."""

CRITICAL_FRACTION = 1 / 3
"""Headroom 1.50x: no other single remedy is likely to give more."""

MIN_STEADY_STEPS = 6
"""Fewest values with a distribution-free 95 % interval of their median (1 - 2 / 2**6)."""

MIN_EXPLAINED = 0.5
"""A cause is named if it explains at least half of the time in question."""

MAX_HALF_WIDTH = WARNING_FRACTION
"""Widest interval, to one side, over the median: a change as large as a warning must show."""

MIN_IDLE_CORES = 0.5
"""With half a core idle on average there was room for the job beside the others."""

MIN_SPANS = 2
"""One start of an epoch, one evaluation, one checkpoint is no pattern."""

TINY_OPERATOR_COST_S = 40e-6
"""Most that an operator under 20 µs costs: itself, and as much again to start it (Python,
autograd, dispatcher; 10 to 20 µs measured in eager mode, forward and backward together)."""

MIN_RECOMPILES = 2
"""One is how torch learns that a size varies."""

RECOMPILE_LIMIT = 8
"""Default of `torch._dynamo.config.recompile_limit`: beyond it a function runs eagerly."""

PAGE_FAULT_S = 1.8e-6
"""Measured on a virtual machine: 20,000 faults a step of a convnet, 36 ms in the kernel."""

FULL_FRACTION = 0.9
"""A kernel that kills leaves no exception: so near the limit, want of memory is likely."""

MIN_SWAP_BYTES_PER_S = 1 << 20
"""Below 1 MiB a second the machine tidies up; nothing waits for it."""

MIN_MAJOR_FAULTS = 1
"""A step; less is start-up."""

MAJOR_FAULT_S = 1e-4
"""One read from a solid-state disk."""

MIN_GROWTH_BYTES = 16 << 20
"""An arena of the allocator, a cache that fills."""

MIN_GROWTH_FRACTION = 0.05
"""Of what was there at the window's beginning: resident memory wobbles by some per cent."""

MIN_GROWTH_STEPS = 30
"""Caches and the allocator's arenas fill over some tens of steps."""

MIN_CERTAIN_FRACTION = 0.5
"""A slope whose interval begins below half of it is a wobble as likely as a trend."""

FULL_WITHIN = 10
"""Times the steps seen: a run is that much longer than what was seen of it, or more."""

MIN_CLOCK_FRACTION = 0.05
"""A governor moves the clocks of a busy machine by some per cent by itself."""

MIN_NEIGHBOR_CORES = 0.25
"""What runs beside a training by itself (a desktop, a monitor) takes less."""

MIN_READ_BYTES_PER_S = 4 << 20
"""A slow disk reads ten times as much; what is less comes with the writing of logs."""

MIN_MEMORY_FRACTION = 0.1
"""The page cache of a machine breathes by some per cent."""

SAME_TIME_FRACTION = 0.1
"""Of a run: ranks that wait for each other change within some steps."""
