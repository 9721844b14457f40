"""`steptime verify`: the frame of its commands, each of which is a module beside this one."""

from __future__ import annotations

PARTS: tuple[str, ...] = ("model", "release", "training", "power")
"""The commands of `steptime verify`."""

SUMMARY = "judge whether a model, or a changed training, is as good"
DESCRIPTION = """\
Judge by predictions whether a model is as good as another, by the metrics of
several teams whether it may ship, or over several runs with different seeds
whether a changed training ends as good. There are three answers: PASS, FAIL,
and INCONCLUSIVE where more rows or runs are needed.
"""
USAGE = "steptime verify COMMAND --help"
EXAMPLES = """\
examples:
  steptime verify model --reference old.csv --candidate new.csv --metric right
  steptime verify release release.toml
  steptime verify training --margin 1%-of-training --seed-flag=--seed \\
      --reference "python train.py" \\
      --candidate "steptime run --recipe tuned.toml -- python train.py"
  steptime verify training --table runs.csv --metric loss --margin 0.01
  steptime verify power --margin 0.01 --sd 0.006
"""
