"""Judges whether a training with levers is as good as without them.

Start at `protocol`, which says which whole runs a judgement needs, and at `judge_quality`, which
combines the checks into a verdict. `recordings` reads what the guest recorded of a run; `counts`
compares what must be equal, `numerics` compares one step, and `lockstep` the losses.
"""
