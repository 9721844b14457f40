"""`steptime plan`: the frame of its commands, each of which is a module beside this one."""

from __future__ import annotations

PARTS: tuple[str, ...] = ("shapes", "batch")
"""The commands of `steptime plan`."""

SUMMARY = "choose widths of a model, and sizes of a batch"
DESCRIPTION = "Choose widths that suit the device, and sizes of a batch that go together."
USAGE = "steptime plan COMMAND --help"
EXAMPLES = """\
examples:
  steptime plan shapes --measure -- python train.py
  steptime plan batch global=512 micro=8 devices=4
"""
