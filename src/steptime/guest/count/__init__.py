"""The work of a step: operators seen under a dispatch mode, and their formulas.

In: the calls of a few updates, which the hooks run through a probe. Out: the lines `ops`, `count`
and `x`. Start with `count_plan.py`, which chooses the updates, and with `operator_probe.py`, which
enters and leaves the mode; `whole_updates.py` counts in an extra run. `tally.py` adds up,
`flops.py` has the formulas.
"""
