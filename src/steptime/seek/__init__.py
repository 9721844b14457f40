"""The search of a training's parameters for the least time to a quality.

In: finished runs with the seconds at which each evaluation came. Out: which run comes next, when a
run that goes on is hopeless, and what the runs say in the end. Functions of their arguments: `app`
makes the runs.
"""
