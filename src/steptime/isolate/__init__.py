"""Keeps a child that reruns the user's command from doing harm.

In: a command, its environment and a folder. Out: a running child, how it ended, and what it tried
to write elsewhere. Start with `tiers.py` and `probe.py`, which finds the best tier that works here,
then `child.py`, which starts a child. `launcher.py` is the process between, and everything it
imports runs in it: `guard/` and `overlay/` are the walls, `broker/` answers what a filter cannot
judge, `left/` finds what remains.
"""
