"""`steptime quantize`: a trained network as one of bytes, for processors without floats."""

from __future__ import annotations

import argparse
from pathlib import Path

from steptime.cli.options import JSON_BESIDE
from steptime.cli.output import VERDICT_CODES, put, tell
from steptime.errors import UsageError

SUMMARY = "turn a trained network into one of bytes (int8), and judge it"
DESCRIPTION = """\
Turn a trained network into one whose weights and activations are bytes, four
times smaller, and compare both row by row. Out come C sources without floating
point and without a heap, ONNX, and a verdict that rests on the same bits. An
operator that cannot be made integer is named before anything is written.
"""
USAGE = """\
steptime quantize FILE:FUNCTION --calibrate X --evaluate XY [options]"""
EXAMPLES = """\
examples:
  steptime quantize model.py:build --weights ckpt.pt \\
      --calibrate train.npz --evaluate test.npz -o quantized/
  steptime quantize model.py:build --weights ckpt.safetensors \\
      --calibrate x.npz --evaluate test.npz --metric squared_error --margin 0.01
  steptime quantize model.py:build --weights ckpt.pt \\
      --calibrate x.npz --evaluate test.npz --curve --keep 'stem.*=fp32'
"""
OPTIONS = (
    """\
  MODEL  FILE.py:FUNCTION, a function without arguments that returns the network
network:
  --weights FILE  its weights: torch.save(model.state_dict(), FILE) or safetensors
  --calibrate FILE  inputs `x` as in training, as .npz, from which ranges are taken (required)
  --evaluate FILE  inputs `x` with labels or targets `y`, for the comparison (required)
question:
  --metric {accuracy,squared_error}  without it: accuracy for labels that are whole numbers
  --margin X  the loss that does not matter (accuracy: 0.01)
  --curve  also try layers in other forms: size, latency and metric
  --keep LAYER[=FORM]  keep a layer wider, as `int16` (the default) or `fp32`; a pattern such as
      `stem.*`, too; the last that fits counts (repeatable)
  --observer {min_max,percentile,mse}  how ranges are taken (default: mse)
  --rounding {nearest,corrected,adaptive}  of weights and biases (default: corrected)
output:
  -o, --output DIR  write the files to DIR (default: quantized)
"""
    + JSON_BESIDE
)


def execute(options: argparse.Namespace) -> int:
    """Turn a network into one of bytes, and print what that costs."""
    from steptime.app.quantize.load_model import load_arrays, load_model
    from steptime.app.quantize.quantize_model import QuantizeAsked, make_network
    from steptime.app.stored.page_file import write_page_file
    from steptime.quantize.observers import Observer
    from steptime.quantize.rounding.round_weights import Rounding
    from steptime.report.blocks.quantize.quantize_report import quantize_report
    from steptime.report.document.envelope import enclose

    if options.margin is not None and not 0 <= options.margin < float("inf"):
        raise UsageError(f"--margin: `{options.margin}` is below 0 or no number; it is a size.")
    output = Path(options.output or "quantized")
    weights = None if options.weights is None else Path(options.weights)
    calibrate, _ = load_arrays(Path(options.calibrate), needs_labels=False)
    evaluate = load_arrays(Path(options.evaluate), needs_labels=True)
    model = load_model(options.model, weights)
    asked = QuantizeAsked(
        metric=options.metric,
        margin=options.margin,
        has_curve=options.curve,
        observer=Observer(options.observer or "mse"),
        keep=tuple(_kept(word) for word in options.keep),
        rounding=Rounding(options.rounding or "corrected"),
    )
    found = make_network(
        model,
        calibrate,
        evaluate,
        asked,
        output=output,
        tell=tell,
    )
    page = write_page_file(quantize_report(found), output / "report.html")
    tell(f"the page of this network: {page}")
    code = VERDICT_CODES[found.outcome.value]
    document = enclose("quantize", found, exit_code=code)
    put(options, document, lambda: quantize_report(found), is_beside=True)
    return code


def _kept(word: str) -> tuple[str, str]:
    """Return the layer and the form of `LAYER=FORM`."""
    name, _, form = word.partition("=")
    return name, form if "=" in word else "int16"
