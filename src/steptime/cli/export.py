"""`steptime export`: one run in the format of another tool."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from steptime.cli.options import add_json, add_run_id, add_store, check_json, store_folder
from steptime.cli.output import check_target, open_store, say, write_json
from steptime.errors import SteptimeError, UsageError

SUMMARY = "write a run as a trace for Perfetto"
DESCRIPTION = """\
Write a run as a Chrome trace. Each rank is a process; its steps, phases and
events are slices; the load of the machine and of its devices are counters. Open
the file in chrome://tracing or at https://ui.perfetto.dev, which does not
upload it."""
USAGE = "steptime export --chrome ID -o FILE [options]"
EXAMPLES = """\
examples:
  steptime export --chrome last -o trace.json
  steptime export --chrome 20261120-1015 -o trace.json.gz
"""

_MAX_STEPS = 100_000
"""Above it neighboring steps are drawn as their mean: a trace of 40 MB is slow to open."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `export`."""
    add_run_id(parser)
    formats = parser.add_argument_group("format")
    formats.add_argument(
        "--chrome",
        action="store_true",
        required=True,
        help="write the Trace Event Format of Chrome, which is JSON",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="write the trace to FILE; it is compressed if the name ends in .gz",
    )
    add_json(output, what="write one JSON document about the trace, to FILE or to stdout")
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Write the trace."""
    check_target("--output", options.output)
    check_json(options)
    from steptime.app.run_listing import find_run
    from steptime.export.chrome_trace import chrome_trace
    from steptime.measure.series.run_series import read_series, read_slices
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import ExportDocument

    run = find_run(open_store(store_folder(options)), options.run)
    series = read_series(run.folder, None, max_steps=_MAX_STEPS)
    if not (series.steps or series.host):
        raise UsageError(
            f"there is nothing to draw for run {run.run_id}: neither a step nor the load of the "
            "machine was recorded.",
            hint=f"See what is known about it: steptime show {run.run_id}",
        )
    document = chrome_trace(series, read_slices(run.folder), run_id=run.run_id)
    size = _write(Path(options.output), document)
    if options.json is None:
        say(f"steptime: the trace is in {options.output}. Open it at https://ui.perfetto.dev")
    else:
        written = ExportDocument(
            run_id=run.run_id,
            format="chrome",
            path=options.output,
            bytes=size,
            num_events=len(document["traceEvents"]),
        )
        write_json(options.json, enclose("export", written))
    return 0


def _write(path: Path, document: dict[str, Any]) -> int:
    """The file's size [bytes]."""
    data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    try:
        path.write_bytes(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
        return path.stat().st_size
    except OSError as error:
        raise SteptimeError(f"--output: {error}") from error
