"""Words of the calibration of probabilities."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.units import format_count
from steptime.report.words.verify.judged_model import describe_p
from steptime.verify.values import Outcome
from steptime.verify.values.calibration_result import Calibration, Repair

METHODS: Mapping[str, str] = {
    "temperature": "one temperature (divide the logits by {temperature:.3g})",
    "platt": "Platt scaling (logit x {slope:.3g} {offset:+.3g})",
    "isotonic": "an isotonic curve",
}


def describe_error(found: Calibration) -> str:
    """Say how large the error is beside that of a calibrated model."""
    answer = "not calibrated" if found.outcome is Outcome.FAIL else "no error beyond chance"
    text = f"{answer}: calibration error {found.error:.3g}; a calibrated model shows "
    text += f"{found.error_of_chance:.2g}, and more than {found.limit_of_chance:.2g} in 5 % of "
    text += f"draws (p {describe_p(found.p)})"
    if found.outcome is Outcome.FAIL and found.mean_shift:
        side = "too high" if found.mean_shift > 0 else "too low"
        text += f"; on average {abs(found.mean_shift):.2g} {side}"
    return text


def describe_power(found: Calibration) -> str | None:
    """Say which error these rows would show; None where one was found."""
    if found.outcome is Outcome.FAIL:
        return None
    if found.least_seen is None:
        return f"{format_count(found.num)} rows would not even show an overconfidence of 0.3"
    return (
        f"these rows would show a constant overconfidence of {found.least_seen:g} or more in 80 % "
        "of draws, a smaller one less often"
    )


def describe_tests(found: Calibration) -> str:
    """Say how the error is known: its bins, and the tests that need none."""
    tests = (
        ("Kolmogorov-Smirnov", found.p_kolmogorov_smirnov),
        ("Kuiper", found.p_kuiper),
        ("Spiegelhalter", found.p_spiegelhalter),
    )
    what = "the predicted label" if found.is_of_top_label else "the label 1"
    known = [f"; {name} p {describe_p(p)}" for name, p in tests if p is not None]
    return (
        f"probabilities of {what}, in {len(found.bins)} bins; {found.error_smooth:.3g} smoothed, "
        f"without bins{''.join(known)}"
    )


def describe_cancelling(found: Calibration) -> str | None:
    """Say that errors cancel in coarse bins; None where they do not."""
    if not found.is_cancelling:
        return None
    return (
        f"errors of opposite signs cancel within bins: {found.error_coarse:.4f} over 10 bins, "
        f"{found.error_fine:.4f} over 20"
    )


def describe_promises(found: Calibration) -> str:
    """Say which bins break their promise, or how many rows a bin would need."""
    broken = [one for one in found.bins if one.is_broken]
    if broken:
        worst = max(broken, key=lambda one: abs(one.happened.estimate - one.promised))
        return (
            f"{len(broken)} of {len(found.bins)} are not as promised; the worst promises "
            f"{worst.promised:.3f}, and {worst.happened.estimate:.3f} came true"
        )
    least = min(one.num for one in found.bins)
    if least >= found.num_per_bin:
        return (
            f"each has the {format_count(found.num_per_bin)} rows that would show an error of 0.1"
        )
    return (
        f"a bin needs {format_count(found.num_per_bin)} rows to show an error of 0.1; the "
        f"smallest has {format_count(least)}"
    )


def describe_repair(found: Repair) -> str:
    """Say what a repair gives on rows that it was not fitted on."""
    method = METHODS[found.method].format(**{one.name: one.value for one in found.parameters})
    gain = found.log_loss_gain
    text = f"{method}: log loss lower by {gain.estimate:.3g} ({gain.low:.3g} to {gain.high:.3g}), "
    text += f"calibration error {found.error_after:.2g} afterwards"
    return text if found.is_proven else f"{text}; not proven"
