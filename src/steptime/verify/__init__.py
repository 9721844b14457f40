"""Judges whether a training with levers is as good as without them.

Start at `protocol`, which says which whole runs that takes, and at `judge_quality`, which puts the
checks together to a verdict. `recordings` reads what the guest kept of a run; `counts` compares
what must be equal, `numerics` one step, and `lockstep` the losses.
"""
