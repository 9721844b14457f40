"""MFU and HFU that were published, recomputed from their rows by closed forms.

    python benchmarks/fit/published_mfu.py published-runs.json [--out FILE]

A row counts where it prints a utilization, names a convention, and gives a rate (tokens a second,
or a step time with its batch). The formula is that of the convention, the peak the datasheet's
for the part and the type of the row; neither is ever chosen by the row's result. What was found
of each convention goes to benchmarks/results/published_mfu.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steptime.core.devices.hardware import find_accelerator

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from published_flops import (
    Recompute,
    Transformer,
    hardware_flops_per_token,
    model_flops_per_token,
    utilization,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "published_mfu.json"

CLOSE = 0.01
"""A printed fraction has two or three digits."""

GATED = ("llama",)
"""Families whose MLP has three matrices; a row gives its width alone."""


@dataclass(frozen=True)
class Checked:
    """One printed utilization with ours; `why` it could not be recomputed."""

    id: str
    convention: str
    what: str
    printed: float
    recomputed: float | None = None
    why: str | None = None

    @property
    def error(self) -> float | None:
        return None if self.recomputed is None else self.recomputed / self.printed - 1


def check_row(row: dict[str, Any]) -> list[Checked]:
    """The utilizations that a row prints, recomputed."""
    convention = row.get("flops_convention")
    derived = row.get("derived") or []
    found = []
    for what in ("mfu", "hfu"):
        if convention is None or row.get(what) is None or what in derived:
            continue
        base = Checked(row["id"], convention, what, row[what])
        try:
            value = recompute(row, convention, what)
        except LookupError as error:
            found.append(Checked(base.id, convention, what, base.printed, why=str(error.args[0])))
        else:
            found.append(Checked(base.id, convention, what, base.printed, value))
    return found


def recompute(row: dict[str, Any], convention: str, what: str) -> float:
    """MFU or HFU of a row.

    Raises:
        LookupError: the row does not say enough; the text is why.
    """
    rate, shape = rate_of(row), shape_of(row)
    if what == "mfu":
        flops = model_flops_per_token(shape, convention)
    else:
        flops = hardware_flops_per_token(shape, convention, recompute=recompute_of(row))
    value = utilization(flops, rate, peak_of(row))
    if value is None:
        raise LookupError("no datasheet peak")
    return value


def rate_of(row: dict[str, Any]) -> float:
    """Tokens a second on one device; from the step time where there is one, as printed."""
    if row.get("step_time_s") and row.get("gbs") and row.get("seq"):
        return float(row["gbs"]) * row["seq"] / row["step_time_s"] / row["n_gpus"]
    if row.get("tokens_per_s_per_gpu"):
        return float(row["tokens_per_s_per_gpu"])
    raise LookupError("no rate")


def shape_of(row: dict[str, Any]) -> Transformer:
    names = ("layers", "hidden", "heads", "seq", "vocab")
    missing = [name for name in names if row.get(name) is None]
    if missing:
        raise LookupError(f"no {missing[0]}")
    return Transformer(
        **{name: row[name] for name in names},
        kv_heads=row.get("kv_heads"),
        ffn=row.get("ffn"),
        is_gated=row["model"].lower().startswith(GATED),
        params=row.get("params"),
    )


def recompute_of(row: dict[str, Any]) -> Recompute:
    word = (row.get("ac") or "none").split()[0]
    if word not in [one.value for one in Recompute]:
        raise LookupError(f"checkpointing {word!r} has no formula")
    return Recompute(word)


def peak_of(row: dict[str, Any]) -> float | None:
    """Dense peak of the type that did the work."""
    part = find_accelerator(row["hardware"])
    words = row.get("precision") or ""
    dtype = next((one for one in ("fp8", "bf16", "fp16") if one in words), None)
    return None if part is None or dtype is None else part.peak_flops_per_s.get(dtype)


def explain(row: dict[str, Any], one: Checked) -> str:
    """What the row itself says of a miss: how finely it is printed, and its own TFLOPS.

    Where its TFLOPS agree with its utilization as in the other rows of its source, both were
    taken from other steps than the step time was.
    """
    digits = f"{one.printed:.4f}".rstrip("0").partition(".")[2]
    rounding = 0.5 * 10 ** -len(digits) / one.printed
    facts = [f"printed to ±{rounding:.1%}"]
    peak = peak_of(row)
    if row.get("tflops_per_gpu") and peak:
        facts.append(f"its own TFLOPS are {row['tflops_per_gpu'] * 1e12 / peak:.4f} of the peak")
    return ", ".join(facts)


def report(checked: list[Checked], rows_by_id: dict[str, dict[str, Any]]) -> str:
    """A table by convention, and the rows that miss."""
    groups: dict[tuple[str, str], list[Checked]] = defaultdict(list)
    for one in checked:
        groups[one.what, one.convention].append(one)
    lines = [f"{'':4} {'convention':12} {'printed':>7} {'rate':>5} {'within':>6}  least and most"]
    for (what, convention), rows in sorted(groups.items(), reverse=True):
        errors = [one.error for one in rows if one.error is not None]
        close = sum(abs(error) <= CLOSE for error in errors)
        span = f"{min(errors):+.2%} {max(errors):+.2%}" if errors else "-"
        lines.append(f"{what:4} {convention:12} {len(rows):7} {len(errors):5} {close:6}  {span}")
    for what in ("mfu", "hfu"):
        errors = [one.error for one in checked if one.what == what and one.error is not None]
        close = sum(abs(error) <= CLOSE for error in errors)
        lines.append(f"{what}: {close} of {len(errors)} rows within {CLOSE:.0%}")
    lines += [
        f"  misses: {one.id} {one.what} ({one.convention}): printed {one.printed:.4f}, "
        f"recomputed {one.recomputed:.4f} ({one.error:+.2%}); {explain(rows_by_id[one.id], one)}"
        for one in checked
        if one.error is not None and abs(one.error) > CLOSE
    ]
    reasons: dict[str, int] = defaultdict(int)
    for one in checked:
        if one.why is not None:
            reasons[f"{one.what}, {one.convention}: {one.why}"] += 1
    lines += [f"  not recomputed: {number} ({reason})" for reason, number in reasons.items()]
    return "\n".join(lines)


def summarize(checked: list[Checked]) -> dict[str, Any]:
    """What is saved: a row for each convention, and the utilizations that miss."""
    groups: dict[tuple[str, str], list[Checked]] = defaultdict(list)
    for one in checked:
        groups[one.what, one.convention].append(one)
    table = []
    for (what, convention), rows in sorted(groups.items(), reverse=True):
        errors = [one.error for one in rows if one.error is not None]
        table.append(
            {
                "what": what,
                "convention": convention,
                "printed": len(rows),
                "recomputed": len(errors),
                "close": sum(abs(error) <= CLOSE for error in errors),
                "median_error": statistics.median(errors) if errors else None,
                "least_error": min(errors, default=None),
                "most_error": max(errors, default=None),
                "why_not": Counter(one.why for one in rows if one.why is not None),
            }
        )
    misses = [one for one in checked if one.error is not None and abs(one.error) > CLOSE]
    return {
        "conventions": table,
        "misses": [asdict(one) | {"error": one.error} for one in misses],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="the rows, as JSON")
    parser.add_argument("--out", type=Path, default=OUT, help="where the figures go")
    options = parser.parse_args()
    if not options.rows.is_file():
        print(f"skipped: there is no {options.rows}")
        return 0
    rows = json.loads(options.rows.read_text(encoding="utf-8"))["rows"]
    checked = [one for row in rows for one in check_row(row)]
    print(report(checked, {row["id"]: row for row in rows}))
    document = {**stamp(), "close": CLOSE, **summarize(checked)}
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
