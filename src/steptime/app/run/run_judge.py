"""Judges a run while it goes on, in a process of its own with little priority.

In: the run's folder. Out: its findings, each with what `--stop-on` calls it. Folding a long run
takes seconds, in which this process must pass on signals; so a child does it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from steptime.core.codec import decode, encode
from steptime.diagnose.ailments.all_ailments import ailment_of
from steptime.diagnose.ailments.ranks import desynced, stalled
from steptime.diagnose.values.finding import Finding, Severity
from steptime.errors import SteptimeError
from steptime.measure.values.measurement import Measurement

_REASONS = {
    "non_finite": ("non_finite",),
    "stall": (*stalled.CAUSES, *desynced.CAUSES),
    "no_learning": ("loss_flat", "diverging"),
}
_SENSE = "steptime.diagnose.ailments.sense"
"""The folder of rules on whether a training does what is meant; it may have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFinding:
    """A finding of a run that goes on; `stops` is the word of `--stop-on` that it answers to."""

    cause: str
    severity: str
    text: str
    stops: str | None = None
    where: str | None = None
    first_update: int | None = None
    lasted_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is known of a run so far."""

    run_id: str
    num_steps: int
    step_s: float | None = None
    findings: tuple[JudgedFinding, ...] = ()


class Judge:
    """The process that judges, of which there is one at a time."""

    def __init__(self, folder: Path) -> None:
        places = [place for place in sys.path if place]  # not the working folder
        code = f"import sys; sys.path[:] = {places!r}; from {__name__} import main; "
        self._words = (sys.executable, "-c", f"{code}main({str(folder)!r})")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to judge; the process is in a session of its own, out of reach of Ctrl-C."""
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=partial(os.nice, 19),  # noqa: PLW1509  # this process has one thread
        )

    def take(self) -> Judgement | None:
        """Return what was found since `start`; None as long as it is not known.

        Raises:
            SteptimeError: it could not be found out.
        """
        process = self._process
        if process is None or process.poll() is None:
            return None
        self._process = None
        text, _ = process.communicate()
        return decode(Judgement, text, where="the judge of this run")

    def wait(self, timeout_s: float) -> Judgement:
        """Return what was found since `start`; nothing where it takes longer than that."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        found = self.take()
        self.stop()
        return Judgement(run_id="", num_steps=0) if found is None else found

    @property
    def is_busy(self) -> bool:
        """Whether it was started, and its answer is not taken yet."""
        return self._process is not None

    def stop(self) -> None:
        """End it, if it still works."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main(folder: str) -> None:
    """Write the judgement of a run's folder to standard output."""
    from steptime.app.stored.load import fold_now
    from steptime.app.stored.run_listing import run_at

    try:
        observed = fold_now(run_at(Path(folder)))
    except SteptimeError:  # nothing was written yet
        judged = Judgement(run_id="", num_steps=0)
    else:
        judged = judge(observed.measurement, observed.diagnosis.findings)
    os.write(1, encode(judged).encode())


def judge(m: Measurement, findings: tuple[Finding, ...]) -> Judgement:
    """Return the findings at warning or above, with the words of `--stop-on`."""
    steady = m.steady
    serious = [one for one in findings if one.severity is not Severity.INFO]
    return Judgement(
        run_id=m.run_id,
        num_steps=m.num_steps,
        step_s=None if steady is None else steady.mean_s,
        findings=tuple(_judged(one, m) for one in serious),
    )


def _judged(finding: Finding, m: Measurement) -> JudgedFinding:
    from steptime.report.words.run.run_words import describe_finding

    numbers = {one.name: one.value for one in finding.evidence}
    first = numbers.get("first_update")
    return JudgedFinding(
        cause=finding.cause or (finding.kind.value.lower() if finding.kind else ""),
        severity=finding.severity.value,
        text=describe_finding(finding, None),
        stops=_stops(finding, m),
        where=finding.where,
        first_update=None if first is None else round(first),
        lasted_s=numbers.get("stall_time"),
    )


def _stops(finding: Finding, m: Measurement) -> str | None:
    """Return the word of `--stop-on` that a finding answers to, if the fault goes on."""
    word = next((name for name, causes in _REASONS.items() if finding.cause in causes), None)
    if word == "non_finite":
        bad = None if m.health is None else m.health.non_finite
        return word if bad is not None and bad.is_going_on else None
    if word == "stall":
        return word if any(one.duration_s is None for one in m.stalls) else None
    if word is None and finding.severity is Severity.CRITICAL and _is_of_sense(finding):
        return "sense"
    return word


def _is_of_sense(finding: Finding) -> bool:
    row = ailment_of(finding)
    rule = None if row is None else row.rule
    rule = rule.func if isinstance(rule, partial) else rule
    return getattr(rule, "__module__", "").startswith(_SENSE)
