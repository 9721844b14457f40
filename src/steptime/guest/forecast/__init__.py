"""The peak of a training step on tensors that have shapes and no memory.

In: a model, its batch, its optimizer; or a script, whose parameters become fake as it makes them.
Out: the facts of a `MemoryForecast`. Start with `fake_step.py`, which runs a step; `fake_mode.py`
makes fakes, `fake_operators.py` runs single operators, `corrections.py` knows what fakes leave out.
"""
