"""`steptime data convert`: data in a form that costs little to read."""

from __future__ import annotations

import argparse
import sys

from steptime.cli.options import JSON
from steptime.cli.output import console_for, write_json

SUMMARY = "prepare data once, so that reading it costs little"
DESCRIPTION = """\
Convert data to plain mapped arrays (values of one shape) and Arrow files
(values that vary). It measures on a sample what that gives, says so, and does it
where reading becomes at least 1.1x as fast. An interrupted conversion continues
with the same command; all that was written is read back."""
USAGE = "steptime data convert SOURCE TARGET [options]"
EXAMPLES = """\
examples:
  steptime data convert photos photos.prepared --decode --resize 256x256
  steptime data convert records.parquet records.prepared --dry-run
"""
OPTIONS = (
    """\
  SOURCE  a file or folder
  TARGET  the folder to make; it must not exist
  --format NAME  of SOURCE; without it, told by its contents
pictures; without these, their bytes are kept:
  --decode  store pixels, as RGB
  --resize SIZE  256: the shorter side; 256x192: width and height
  --jpeg N  store JPEG of this quality, such as 90
doing:
  --dry-run  only say what it would give
  --force  do it although it does not pay
"""
    + JSON
)
NO_GAIN = 5
"""The exit code where it is not done: the gate is a gain of 1.1x."""


def execute(options: argparse.Namespace) -> int:
    """Convert data."""
    from steptime.app.data.data_convert import ConversionRequest, convert_data
    from steptime.cli.progress import OverwrittenLine
    from steptime.report.blocks.data.conversion_report import (
        conversion_blocks,
        prediction_blocks,
        progress_line,
    )
    from steptime.report.document.data_documents import conversion_envelope
    from steptime.report.text.paint_text import print_blocks

    console = console_for(sys.stdout)
    line, is_told = OverwrittenLine(sys.stderr), options.json is None
    request = ConversionRequest(
        source=options.source,
        target=options.target,
        source_format=options.format,
        decode=options.decode,
        resize=options.resize,
        quality=options.jpeg,
        is_dry_run=options.dry_run,
        is_anyway=options.force,
    )
    try:
        answer = convert_data(
            request,
            tell=lambda p: print_blocks(prediction_blocks(p) * is_told, console=console),
            show=lambda progress: line.show(progress_line(progress)),
        )
    finally:
        line.close()
    is_refused = not (options.dry_run or answer.conversion or answer.prediction.is_worth_it)
    code = NO_GAIN if is_refused else 0
    if options.json is not None:
        write_json(options.json, conversion_envelope(answer, exit_code=code))
    else:
        print_blocks(conversion_blocks(answer), console=console)
    return code
