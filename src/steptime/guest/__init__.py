"""The guest: it lives inside each Python process of the user's command and watches it.

`inject/site/sitecustomize.py` loads this folder by location once torch has been executed, as part
of a private package in which it finds `..record` and nothing else of ours. The guest uses the
standard library and the torch that the script imported, nothing else. It may lose a sample; it may
never break or change the training. Clocks and `dumps` are bound when a module is loaded, because a
script may replace them later.

In: markers from the hooks, and the plan of a trial. Out: lines in the run's folder. To read it,
start with `bootstrap.py`; `modes/` says what a process is there for, `frameworks/` holds what knows
a framework and `hooks/` what all of them share. A hook notes a marker in a `timeline/` journal, and
the recorder there writes the rows. `sites/`, `count/`, `memory/` and `profile/` examine a few
updates more closely, `watchers/` observe the process at each write, `trial/`, `quality/` and
`redirect/` serve the trials of `tune`, and `tfdata/` a bench of the input pipeline.
"""

from __future__ import annotations

from .bootstrap import start

__all__ = ["start"]
