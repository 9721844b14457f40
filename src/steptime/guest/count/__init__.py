"""The work of a step: operators seen under a dispatch mode, and their formulas.

In: the calls of one early update, which the hooks run through a probe. Out: the lines `ops`,
`count` and `x`. Start with `operator_probe.py`, which enters and leaves the mode; `tally.py` adds
up, `flops.py` has the formulas.
"""
