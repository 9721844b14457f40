"""`steptime data bench`: what the loader of a training costs, and what a better one could gain."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_time
from steptime.cli.options import (
    CONTAINED,
    JSON_BESIDE,
    STORE,
    need_at_least,
    store_to_write,
    take_command,
)
from steptime.cli.output import STDOUT, console_for, tell, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.data.values.tf_data_values import TfData
    from steptime.measure.values.loader_bench import LoaderBench

SUMMARY = "measure the loader of a training, by part, and the most a better one could gain"
DESCRIPTION = """\
Run the command a few times, each in a child that can do no harm: with its own
loader, with one batch that is kept and given again and again, and up to its
loader alone, whose batches are read with their bytes cached and without. With a
SOURCE (a file, a folder or an address), read its batches alone. The report names
the bottleneck, the times by part, how many workers would keep up, and the upper
bound of what any other loader could gain.
A training that reads tf.data (Keras, TensorFlow) is measured by tf.data's own
statistics: the slowest stage, the wait in a step, and changes with their lines.
"""
USAGE = "steptime data bench [options] (SOURCE | -- COMMAND [ARG ...])"
EXAMPLES = """\
examples:
  steptime data bench images/ --step-ms 28
  steptime data bench -- python train.py
  steptime data bench --workers-curve -- python train.py --batch-size 64
  steptime data bench -- python keras_train.py
  steptime data bench --json bench.json -- python train.py
"""
OPTIONS = (
    """\
  [WORDS...]
passes:
  --window TIME  how long the loop is timed in each pass, 20 steps at least; twice and four times
      as long where it stays unclear whether a loader helps (default: 3s)
  --steps N  time at most N steps in each pass; without it, 400
  --workers-curve  measure the loader alone with 0, 1, 2, 4 workers and so on up to the cores;
      without it, the curve is predicted from the parts
of a source:
  --batch-size N  samples of a batch (default: 64)
  --format NAME  of SOURCE; without it, told by its name and content
  --step-ms MS  a training's own step in milliseconds: gives the bound, and the workers that keep
      up
children:
"""
    + CONTAINED
    + """\
output:
"""
    + JSON_BESIDE
    + STORE
)

_EXIT_CODES = {"command_failed": 3, "own_failure": 1, "tf_data": 0}
_INCONCLUSIVE = 4


def execute(options: argparse.Namespace) -> int:
    """Measure the loader and report it."""
    seconds = parse_time(options.window, flag="--window")
    if options.command is None and len(options.words) == 1:
        return _bench_source(options, seconds)
    command = take_command(options, verb="data bench", usage=USAGE)
    need_at_least(options, 1, "steps")
    from steptime.app.data.data_bench import (
        BenchOptions,
        bench_loader,
        tf_data_of,
        write_loader_page,
    )

    bench, run = bench_loader(
        BenchOptions(
            command=command,
            store=store_to_write(options),
            seconds=seconds,
            steps=options.steps,
            with_curve=options.workers_curve,
            allow_unsafe=options.unsafe_trials,
            share_network=options.share_network,
        ),
        tell=tell,
    )
    tf_data = tf_data_of(bench, run)
    return _report(options, bench, page=write_loader_page(bench, run), tf_data=tf_data)


def _bench_source(options: argparse.Namespace, seconds: float) -> int:
    """Measure a source and report it."""
    need_at_least(options, 1, "batch_size")
    if options.step_ms is not None and not 0 < options.step_ms < float("inf"):
        raise UsageError(f"--step-ms must be above 0, got {options.step_ms}.")
    from steptime.app.data.source_bench import SourceOptions, bench_source

    bench = bench_source(
        SourceOptions(
            where=options.words[0],
            source_format=options.format,
            batch_size=options.batch_size,
            seconds=seconds,
            step_s=None if options.step_ms is None else options.step_ms / 1000,
        )
    )
    return _report(options, bench, page=None)


def _report(
    options: argparse.Namespace,
    bench: LoaderBench,
    *,
    page: Path | None,
    tf_data: TfData | None = None,
) -> int:
    """Say what was found, where the options say; return the exit code."""
    from steptime.levers import NAMES
    from steptime.report.blocks.data.loader_report import loader_report
    from steptime.report.blocks.data.tf_data_report import tf_data_blocks
    from steptime.report.blocks.values import Blank
    from steptime.report.document.data_documents import LoaderDocument, loader_envelope
    from steptime.report.text.paint_text import print_blocks, print_report
    from steptime.report.words.data.loader_words import next_commands

    word = bench.missing.get("loader")
    code = 0 if word is None else _EXIT_CODES.get(word, _INCONCLUSIVE)
    is_unclear = word is None and "bottleneck" in bench.missing
    if is_unclear or (tf_data is not None and tf_data.pipeline is None):
        code = _INCONCLUSIVE
    if options.json != STDOUT:
        console = console_for(sys.stdout)
        print_report(loader_report(bench, levers=NAMES), console=console)
        if tf_data is not None:
            print_blocks([Blank(), *tf_data_blocks(tf_data, cwd=str(Path.cwd()))], console=console)
    if page is not None:
        tell(f"the page of this bench: {page}")
    if options.json is not None:
        document = LoaderDocument(
            bench=bench,
            tf_data=tf_data,
            next_commands=tuple(next_commands(bench, levers=NAMES)),
            page=None if page is None else str(page),
        )
        write_json(options.json, loader_envelope(document, exit_code=code))
    return code
