"""Groups the steps of a window by the size of their inputs: how often each came, and its work.

In: how many steps had which size, with their work. Out: a few `SizeGroup`s, the smallest first.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.measure.values.model.work import SizeGroup

MAX_GROUPS = 8

Size = tuple[int, int]
"""Leading sizes and elements of a step's inputs."""

Steps = tuple[int, float]
"""How many steps, and their work together [FLOP]."""


def group_sizes(steps: Mapping[Size, Steps]) -> tuple[SizeGroup, ...]:
    """Return each size, or groups of about equally many steps; nothing where all have one size."""
    if len(steps) <= 1:
        return ()
    ordered = sorted(steps.items(), key=lambda item: (item[0][1], item[0][0]))
    if len(ordered) <= MAX_GROUPS:
        return tuple(_group([one]) for one in ordered)
    whole, seen = sum(num for num, _ in steps.values()), 0
    groups: dict[int, list[tuple[Size, Steps]]] = {}
    for one in ordered:
        groups.setdefault(min(MAX_GROUPS - 1, seen * MAX_GROUPS // whole), []).append(one)
        seen += one[1][0]
    return tuple(map(_group, groups.values()))


def _group(members: list[tuple[Size, Steps]]) -> SizeGroup:
    num = sum(num for _, (num, _) in members)
    rows, elements = zip(*(size for size, _ in members), strict=True)
    return SizeGroup(
        num_steps=num,
        low_rows=min(rows),
        high_rows=max(rows),
        low_elements=min(elements),
        high_elements=max(elements),
        mean_flops=round(sum(flops for _, (_, flops) in members) / num),
    )
