"""`python -m steptime`, as it is where Bokeh is not installed: runs leave no page."""

from __future__ import annotations

import runpy
import sys

sys.modules["bokeh"] = None  # type: ignore[assignment] # so it is not found
del sys.path[0]  # this folder: `-m` has the current one there
sys.path.insert(0, "")
runpy.run_module("steptime", run_name="__main__", alter_sys=True)
