"""`steptime data`: the frame of its commands, each of which is a module beside this one."""

from __future__ import annotations

PARTS: tuple[str, ...] = ("bench", "check", "convert")
"""The commands of `steptime data`; `NAME` is `cli/data_NAME.py`, with what a command has."""

SUMMARY = "measure, prepare and check the data of a training"
DESCRIPTION = """\
Measure what loading data costs a training, prepare the data once so that it
costs less, and check that samples, order and splits are what they should be.
"""
USAGE = "steptime data COMMAND --help"
EXAMPLES = """\
examples:
  steptime data bench -- python train.py    what loading costs, and may gain
  steptime data check -- python train.py
  steptime data convert photos photos.prepared --decode --resize 256x256
"""
