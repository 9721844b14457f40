"""`steptime export`: one run in the format of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path

from steptime.cli.options import JSON, STORE, store_folder
from steptime.cli.output import check_target, open_store, tell, write_json

SUMMARY = "write a run as a trace for Perfetto"
DESCRIPTION = """\
Write a run as a Chrome trace. Each rank is a process; its steps, phases and
events are slices; the load of the machine and of its devices are counters. Open
the file in chrome://tracing or at https://ui.perfetto.dev, which does not
upload it."""
USAGE = "steptime export [ID] -o FILE [options]"
EXAMPLES = """\
examples:
  steptime export -o trace.json
  steptime export 20261120-1015 --to chrome -o trace.json.gz
  steptime export last --training 2 -o trace.json
"""
OPTIONS = (
    """\
  [ID]  the id of a run or the beginning of it; `last~1` is the one before (default: last)
  --training N  write training N of a command that started several
  --to {chrome}  the Trace Event Format of Chrome, which is JSON (default: chrome)
output:
  -o, --output FILE  write the trace to FILE; it is compressed if the name ends in .gz (required)
"""
    + JSON
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Write the trace."""
    check_target("--output", options.output)
    from steptime.app.stored.export import write_trace
    from steptime.app.stored.run_listing import find_run
    from steptime.report.document.envelope import ErrorItem, enclose

    run = find_run(open_store(store_folder(options)), options.id)
    written, num_steps = write_trace(run, Path(options.output), training=options.training)
    errors: tuple[ErrorItem, ...] = ()
    if not num_steps:
        what = f"no step of run {run.run_id} was recorded: the trace holds the machine's load alone"
        tell(what)
        errors = (ErrorItem(code="no_steps", message=what),)
    code = 4 if errors else 0
    if options.json is None:
        tell(f"the trace is in {options.output}. Open it at https://ui.perfetto.dev")
    else:
        write_json(options.json, enclose("export", written, exit_code=code, errors=errors))
    return code
