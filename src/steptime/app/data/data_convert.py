"""Converts data to a form that costs little to read: looks first, and does it if it pays."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.core.units import format_bytes
from steptime.data.values.conversion_values import (
    ConversionAnswer,
    ConversionProgress,
    Prediction,
)
from steptime.errors import DataError, MissingExtraError, UsageError
from steptime.isolate.left.left_folders import hold, remove_left
from steptime.tune.trials.facts.resources import count_cores, read_available_bytes

if TYPE_CHECKING:
    from steptime.data.convert.treatment import Treatment

SCRATCH = ".steptime-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionRequest:
    """What is asked for, by the words of the command line.

    None as `source_format` tells it by the contents; `resize` is `256` (the shorter side) or
    `256x192`; `quality` is that of JPEG.
    """

    source: str
    target: str
    source_format: str | None = None
    decode: bool = False
    resize: str | None = None
    quality: int | None = None
    is_dry_run: bool = False
    is_anyway: bool = False


def convert_data(
    request: ConversionRequest,
    *,
    tell: Callable[[Prediction], None] = lambda prediction: None,
    show: Callable[[ConversionProgress], None] = lambda progress: None,
) -> ConversionAnswer:
    """Predict what the conversion gives, tell it, and do it unless it does not pay.

    Raises:
        UsageError: options contradict each other, the target is there, or it is in the source.
        DataError: the source cannot be read, the target cannot be made, or the disk is too small.
        MissingExtraError: a package is not installed.
    """
    try:
        from steptime.data.convert import conversion, planning, prediction
        from steptime.data.sources.opening import open_source
    except ImportError as error:
        raise MissingExtraError(
            f"converting data needs packages that cannot be imported: {error}",
            needs="steptime[data]",
        ) from error
    treatment = _treatment(request)
    target = Path(request.target)
    conversion.refuse_target(target, request.source)
    with closing(open_source(request.source, format=request.source_format)) as source:
        if not treatment.keeps_bytes and all(c.kind != "image" for c in source.columns):
            raise UsageError("the data holds no pictures to decode, resize or encode again.")
        sample = planning.take_sample(source, treatment)
        is_here = os.path.exists(request.source)
        place = os.path.abspath(request.source) if is_here else source.place_of(0)
        plan = planning.make_plan(source, place, treatment, sample)
        memory = read_available_bytes() or 0
        with _scratch(target.parent) as scratch:
            predicted = prediction.predict(source, sample, plan, scratch, memory_bytes=memory)
        tell(predicted)
        done = None
        is_begun = conversion.partial_of(target).exists()
        if not request.is_dry_run and (predicted.is_worth_it or request.is_anyway or is_begun):
            if not is_begun:
                _check_room(predicted, target)
            done = conversion.convert(
                source, target, plan, treatment, show=show, num_threads=count_cores()
            )
    return ConversionAnswer(
        source=request.source, target=request.target, prediction=predicted, conversion=done
    )


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Give a folder for a moment; remove those that killed conversions left beside it, too."""
    from steptime.data.convert.conversion import ended_by

    remove_left(str(left) for left in folder.glob(f"{SCRATCH}*"))
    scratch = folder / f"{SCRATCH}{os.getpid()}-{time.monotonic_ns()}"
    try:
        scratch.mkdir(0o700)
        hold(str(scratch))
        yield scratch
    except (OSError, KeyboardInterrupt) as error:
        shutil.rmtree(scratch, ignore_errors=True)  # so that what it held counts as free
        raise ended_by(error, folder, "Nothing was written.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _treatment(request: ConversionRequest) -> Treatment:
    from steptime.data.convert.treatment import Treatment, parse_resize

    if request.decode and request.quality is not None:
        raise UsageError(
            "--decode stores pixels and --jpeg stores JPEG.", hint="Leave one of them out."
        )
    if request.quality is not None and not 1 <= request.quality <= 100:
        raise UsageError(f"--jpeg is a quality from 1 to 100, got {request.quality}.")
    size = Treatment() if request.resize is None else parse_resize(request.resize)
    return Treatment(
        decode=request.decode,
        size=size.size,
        shorter_side=size.shorter_side,
        quality=request.quality,
    )


def _check_room(predicted: Prediction, target: Path) -> None:
    """Refuse what does not fit, before anything is written.

    Raises:
        DataError: the disk is too small.
    """
    if predicted.target_bytes.low > predicted.free_bytes:
        raise DataError(
            f"the disk of {target.parent} is too small: the converted data takes about "
            f"{format_bytes(predicted.target_bytes.estimate)}, and "
            f"{format_bytes(predicted.free_bytes)} are free.",
            hint="Name a target on another disk, or store less: --resize 256, --jpeg 90.",
        )
