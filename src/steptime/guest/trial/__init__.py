"""The guest's part of a trial: the plan, live blocks, and the session that levers act in.

In: a plan and experiments, which the parent tells. Out: levers that are on, and the lines
`lever`, `experiment`, `facts`, `counts` and `t`. Start with `lever_guest.py`, through which the
hooks pass under a recipe, and `trial_guest.py`, which learns about the script besides;
`lever_session.py` is what a lever sees, `live_blocks.py` compares states between steps.
"""
