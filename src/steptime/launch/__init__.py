"""How a command starts: its environment, the shims on PATH, and where the run comes from.

In: an argv, the user's environment, and the run's folder. Out: how the command ended, and
`command.json`. Start with `user_command.py`, which starts the command and waits for it; `origin.py`
describes the run before that.
"""
