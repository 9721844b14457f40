"""`steptime plan shapes`: widths of a model that suit this device better."""

from __future__ import annotations

import argparse

from steptime.cli.options import (
    CONTAINED,
    JSON_BESIDE,
    STORE,
    store_to_write,
    take_command,
)
from steptime.cli.output import put, tell

SUMMARY = "propose widths of a model that suit this device better"
DESCRIPTION = """\
Run a training for a moment in a child that can do no harm, see the sizes of its
matmuls, and propose widths that this device computes faster, with their gain.
"""
USAGE = "steptime plan shapes [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
examples:
  steptime plan shapes -- python train.py
  steptime plan shapes --measure -- python train.py
"""
OPTIONS = (
    """\
  [WORDS...]
  --measure  time the operators of the proposals alone, too
child:
"""
    + CONTAINED
    + """\
output:
"""
    + JSON_BESIDE
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """See the sizes of the command, and print what is proposed."""
    command = take_command(options, verb="plan shapes", usage=USAGE)
    from steptime.app.fit.shape_advice import ShapeOptions, fit_shapes, write_shapes_page
    from steptime.report.blocks.fit.shapes_report import shapes_report
    from steptime.report.document.envelope import enclose
    from steptime.report.document.plan_documents import ShapesDocument

    asked = ShapeOptions(
        command=command,
        store=store_to_write(options),
        measure=options.measure,
        share_network=options.share_network,
        allow_unsafe=options.unsafe_trials,
    )
    advice = fit_shapes(asked, tell=tell)
    written = write_shapes_page(advice, asked)
    shown = ShapesDocument(shapes=advice, page=None if written is None else str(written))
    document, command = enclose("plan shapes", shown), asked.command
    put(options, document, lambda: shapes_report(advice, command=command), is_beside=True)
    if written is not None:
        tell(f"the page of these widths: {written!s}")
    return 0
