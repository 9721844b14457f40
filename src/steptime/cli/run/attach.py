"""`steptime attach`: where a process or a run is right now, and what it says while it trains."""

from __future__ import annotations

import argparse
import sys

from steptime.cli.option_values import parse_time
from steptime.cli.options import JSON, STORE, store_folder, was_given
from steptime.cli.output import open_store, put, tell
from steptime.errors import NotAnsweredError, UsageError

SUMMARY = "look into a training that runs: its line, memory, work"
DESCRIPTION = """\
Show at which line each rank of a run is, what it waits for, and for which other
rank. The stacks are read from outside. With a question, the processes examine
one step or a few of them, and go on; nothing is stopped, and not a bit of what
they compute changes. The report does not count the steps that were examined.
"""
USAGE = "steptime attach [PID|RUN] [options]"
EXAMPLES = """\
If the run has ended, the stacks of its last stall are shown. Ctrl-C takes a
question back. A run answers one question at a time.

examples:
  steptime attach
  steptime attach 20261120-1015 --json
  steptime attach 4242
  steptime attach last --memory
  steptime attach last --profile 5 --timeout 5m
"""
OPTIONS = (
    """\
  [PID|RUN]  a process; or the id of a run or the beginning of it (default: last)
question; without one: at which line each rank is:
  --memory  who holds the memory: weights, states, activations, other tensors by shape
  --count  the work of a step in FLOP, by operator class and type
  --profile [STEPS]  record STEPS steps with torch.profiler (default: 3): these are slower, torch
      may print, and a trace is left
  --health [STEPS]  probe the layers for STEPS steps (default: 50): the first one whose numbers
      are not finite, and norms of gradients and updates
  --timeout TIME  how long to wait for an answer, such as 30s or 5m; without it, a minute, and
      longer where steps take long
  --training N  ask training N of a command that started several; without it, all that run
output:
"""
    + JSON
    + STORE
)

_WITH_STEPS = ("profile", "health")
_QUESTIONS = ("memory", "count", *_WITH_STEPS)


def execute(options: argparse.Namespace) -> int:
    """Ask, and print the answers; 1 if a rank did not answer."""
    timeout_s = None if options.timeout is None else parse_time(options.timeout, flag="--timeout")
    from steptime.app.run.attach import ask_run, find_target
    from steptime.app.stored.run_listing import find_run
    from steptime.cli.progress import OverwrittenLine
    from steptime.report.blocks.run.answer_report import answer_report
    from steptime.report.document.envelope import ErrorItem, enclose

    folder, word = store_folder(options), options.pid_run
    found = find_target(word, lambda: find_run(open_store(folder), word))
    asked = [name for name in _QUESTIONS if was_given(options, name)]
    if len(asked) > 1:
        message = f"--{asked[0]} and --{asked[1]} were given."
        raise UsageError(message, hint="A run answers one question at a time.")
    what = asked[0] if asked else "stacks"
    steps = next((n for name in _WITH_STEPS if (n := getattr(options, name)) is not None), None)
    line = OverwrittenLine(sys.stderr)
    try:
        answer = ask_run(
            found,
            what,
            num_steps=steps,
            timeout_s=timeout_s,
            training=options.training,
            show=line.show,
        )
    finally:
        line.close()
    code = 0 if answer.is_whole else 1
    if answer.is_past:
        tell(f"run {answer.run_id} has ended; these stacks were taken while it was stalled")
    errors = tuple(
        ErrorItem(code=NotAnsweredError.code, message=f"rank {one.rank}: {one.missing}")
        for one in answer.ranks
        if one.missing is not None
    )
    document = enclose("attach", answer, exit_code=code, errors=errors)
    put(options, document, lambda: answer_report(answer))
    if errors:
        silent = [str(one.rank) for one in answer.ranks if one.missing is not None]
        tell(f"{len(silent)} of {len(answer.ranks)} ranks gave no answer: {', '.join(silent)}")
    return code
