"""`steptime fit --batch` and `--shapes`: sizes of a batch, and widths that suit the device."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steptime.cli.options import check_json, store_to_write, take_command
from steptime.cli.output import STDOUT, console_for, say, tell, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.plan.values.batch_values import BatchPlan, LearningRateAdvice

SIZES = {
    "global": "global_batch_size",
    "micro": "micro_batch",
    "accum": "grad_accum_steps",
    "dp": "data_parallel",
    "devices": "devices",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "zero": "zero_stage",
    "node": "devices_per_node",
    "layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "ffn": "ffn",
    "vocab": "vocab",
}
"""The words of `--batch`, and what they are."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both."""
    group = parser.add_argument_group("shapes and sizes")
    group.add_argument(
        "--shapes", action="store_true", help="propose widths that suit this device better"
    )
    group.add_argument(
        "--measure",
        action="store_true",
        help="run operators alone: how long those of --shapes take, or what a forecast needs",
    )
    group.add_argument(
        "--batch",
        metavar="SIZE=N",
        action="extend",
        nargs="+",
        help="which sizes go together; no command is run",
    )
    group.add_argument(
        "--rate",
        metavar="X=Y",
        action="extend",
        nargs="+",
        help="with --batch: optimizer=adamw from=256 lr=3e-4",
    )


def execute(options: argparse.Namespace) -> int | None:
    """Do what was asked for; None if neither was."""
    if options.rate is not None and options.batch is None:
        raise UsageError("--rate needs --batch.", hint="Write: --batch global=512 --rate ...")
    if options.measure and options.batch is not None:
        raise UsageError("--measure goes with a command.", hint="Leave it out beside --batch.")
    if options.batch is not None and options.shapes:
        raise UsageError("--batch and --shapes were given.", hint="Ask for one at a time.")
    if options.batch is not None:
        return _show_batch(options)
    return _show_shapes(options) if options.shapes else None


# -- widths of a model


def _show_shapes(options: argparse.Namespace) -> int:
    check_json(options)
    usage = "steptime fit --shapes [--measure] -- COMMAND [ARG ...]"
    command = take_command(options, verb="fit", usage=usage)
    from steptime.app.fit.shape_advice import ShapeOptions, fit_shapes, write_shapes_page

    asked = ShapeOptions(
        command=command,
        store=store_to_write(options),
        measure=options.measure,
        share_network=getattr(options, "share_network", False),
        allow_unsafe=getattr(options, "unsafe_trials", False),
    )
    advice = fit_shapes(asked, tell=tell)
    written = write_shapes_page(advice, asked)
    if options.json is not None:
        from steptime.report.document.shapes_document import shapes_envelope

        write_json(options.json, shapes_envelope(advice, page=written))
    if options.json != STDOUT:
        from steptime.report.blocks.fit.shapes_report import shapes_report
        from steptime.report.text.paint_text import print_report

        print_report(shapes_report(advice, command=command), console=console_for(sys.stdout))
    if written is not None:
        from steptime.core.printable import printable

        say(f"steptime: the page of these widths: {printable(str(written))}")
    return 0


# -- sizes of a batch


def _show_batch(options: argparse.Namespace) -> int:
    from steptime.plan.batch import plan_batch
    from steptime.plan.values.batch_values import GivenSizes

    check_json(options)
    if options.command:
        raise UsageError("--batch takes no command.", hint="Leave out `--` and what follows it.")
    sizes = _sizes_in(options.batch)
    plan = plan_batch(GivenSizes(**sizes))
    if options.rate is not None:
        from dataclasses import replace

        plan = replace(plan, learning_rate=_advice(options.rate, plan))
    if options.json is not None:
        from steptime.report.document.batch_document import batch_envelope

        write_json(options.json, batch_envelope(plan))
    if options.json != STDOUT:
        from steptime.report.blocks.fit.batch_report import batch_blocks
        from steptime.report.text.paint_text import print_blocks

        print_blocks(batch_blocks(plan), console=console_for(sys.stdout))
    return 0


def _sizes_in(words: list[str]) -> dict[str, int]:
    """Return the sizes by their names.

    Raises:
        UsageError: a word is no size, or no whole number, or one is there twice.
    """
    found: dict[str, int] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in SIZES:
            raise UsageError(
                f"--batch: `{word}` names no size.", hint=f"One of: {', '.join(SIZES)}, as micro=8."
            )
        if not (text.isascii() and text.isdigit()):
            raise UsageError(f"--batch: {key} must be a whole number, got `{text}`.")
        if SIZES[key] in found:
            raise UsageError(f"--batch: {key} is there twice.", hint="Leave one of them out.")
        found[SIZES[key]] = int(text)
    return found


def _advice(words: list[str], plan: BatchPlan) -> LearningRateAdvice:
    """Return how the learning rate follows the batch.

    Raises:
        UsageError: a word is none of those that are known, or no number.
    """
    from steptime.plan.learning_rate import advise_learning_rate

    pairs = [word.partition("=") for word in words]
    found = {key: text for key, _, text in pairs}
    unknown = [key for key in found if key not in ("optimizer", "from", "lr")]
    if unknown or not {"optimizer", "from"} <= found.keys():
        raise UsageError(
            f"--rate: got `{' '.join(words)}`; it needs the optimizer and the old global batch.",
            hint="Write: --rate optimizer=adamw from=256 lr=3e-4",
        )
    try:
        return advise_learning_rate(
            found["optimizer"],
            old_batch=int(found["from"]),
            new_batch=plan.choices[0].global_batch_size,
            learning_rate=float(found["lr"]) if "lr" in found else None,
        )
    except ValueError as error:
        raise UsageError(f"--rate: {error}.", hint="from=256 and lr=3e-4 are numbers.") from error
