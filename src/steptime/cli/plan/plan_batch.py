"""`steptime plan batch`: which sizes of a batch and of a job go together."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steptime.cli.options import JSON_BESIDE
from steptime.cli.output import put
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.plan.values.batch_values import BatchPlan, LearningRateAdvice

SUMMARY = "say which sizes of a batch and of a job go together"
DESCRIPTION = """\
Say which sizes go together: global and micro-batch, accumulation, devices and
how the work is spread over them. Nothing is run.
"""
USAGE = "steptime plan batch SIZE=N [SIZE=N ...] [options]"
EXAMPLES = """\
sizes: global, micro, accum, dp, devices, tp, pp, zero, node,
       layers, hidden, heads, kv_heads, ffn, vocab

examples:
  steptime plan batch global=512 micro=8 devices=4
  steptime plan batch global=1024 micro=8 dp=8 --rate optimizer=adamw from=256
"""
OPTIONS = (
    """\
  SIZE=N...  such as global=512 or micro=8
  --rate X=Y [X=Y ...]  how the learning rate follows the batch: optimizer=adamw from=256 lr=3e-4
output:
"""
    + JSON_BESIDE
)

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
"""The words of the sizes, and what they are."""


def execute(options: argparse.Namespace) -> int:
    """Print which sizes go together."""
    from steptime.plan.batch import plan_batch
    from steptime.plan.values.batch_values import GivenSizes
    from steptime.report.blocks.fit.batch_report import batch_blocks
    from steptime.report.document.envelope import enclose
    from steptime.report.document.plan_documents import BatchDocument

    if options.command:
        raise UsageError("`plan batch` takes no command.", hint="Leave out `--` and the rest.")
    sizes = _sizes_in(options.size_n)
    plan = plan_batch(GivenSizes(**sizes))
    if options.rate is not None:
        from dataclasses import replace

        plan = replace(plan, learning_rate=_advice(options.rate, plan))
    document = enclose("plan batch", BatchDocument(batch=plan))
    put(options, document, lambda: batch_blocks(plan), is_beside=True)
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
                f"`{word}` names no size.", hint=f"One of: {', '.join(SIZES)}, as micro=8."
            )
        if not (text.isascii() and text.isdigit()):
            raise UsageError(f"{key} must be a whole number, got `{text}`.")
        if SIZES[key] in found:
            raise UsageError(f"{key} is there twice.", hint="Leave one of them out.")
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
