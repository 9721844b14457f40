"""`steptime.count`: the work of one forward and backward of a model, by its shapes.

In: a model and inputs for it. Out: a `measure.values.work.Count`. The model runs once, in the
caller's process, and everything is left as it was. Start with `count_model.py`.
"""
