"""`steptime verify`: the frame of its commands, each of which is a module beside this one."""

from __future__ import annotations

PARTS: tuple[str, ...] = ("training", "power")
"""The commands of `steptime verify`."""

SUMMARY = "judge over seeds whether a changed training is as good"
DESCRIPTION = """\
Judge whether a changed training ends as good as the one as written, over
several runs with different seeds, and say how many runs that takes. There are
three answers: PASS, FAIL, and INCONCLUSIVE where more runs are needed.
"""
USAGE = "steptime verify COMMAND --help"
EXAMPLES = """\
examples:
  steptime verify training --margin 1%-of-training --seed-flag=--seed \\
      --reference "python train.py" \\
      --candidate "steptime run --recipe tuned.toml -- python train.py"
  steptime verify training --table runs.csv --metric loss --margin 0.01
  steptime verify power --margin 0.01 --sd 0.006
"""
