"""`steptime.plan.memory`: the peak of a training step of a model, before anything has run.

In: a model, a batch, an optimizer. Out: a `plan.values.MemoryForecast`. The step runs on tensors
that have shapes and no memory, in the caller's process. Start with `forecast_model.py`.
"""
