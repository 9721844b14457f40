"""A contained child that forecasts the peak of a script's step on fakes, and is ended then.

In: a command. Out: a `MemoryForecast`. The child's parameters have no memory
(`guest/forecast/script_forecast.py`), nothing of what it writes stays, and its address space may be
bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.errors import NotStartedError
from steptime.isolate.child import start_contained
from steptime.isolate.probe import probe
from steptime.plan.values import MemoryForecast, peak_range
from steptime.record import files, kinds
from steptime.record.lines import Line, LineReader, kind_of
from steptime.tune.trials.trial_process import (
    ContainedProcess,
    Start,
    TrialEnded,
    TrialLimits,
    TrialStart,
    start_trial,
)
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.values.study_values import TrialEnd

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankForecast:
    """The peak of one rank of a command that starts several.

    Attributes:
        rank: its number.
        world_size: number of ranks.
        memory: its peak; without one, why.
    """

    rank: int
    world_size: int
    memory: MemoryForecast


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandForecast:
    """The peak of a script's step, and what levers need to know about the script.

    Attributes:
        memory: the peak; without one, why.
        script: fields of `levers.base.Facts`, as far as fakes show them; empty without a peak.
        process_bytes: private memory of the process without what fakes stand for; None where it
            was not seen.
        ranks: of a command that starts several ranks, what each of them said, in order; `memory` is
            then that of the rank that needs most. Empty for a command of one.
    """

    memory: MemoryForecast
    script: Mapping[str, Any]
    process_bytes: int | None = None
    ranks: tuple[RankForecast, ...] = ()


_EAGER = {"TORCHDYNAMO_DISABLE": "1"}
"""Fakes cannot be compiled; what a compiled step needs is not known."""

_ENDINGS = {
    TrialEnd.FINISHED: "never_steps",
    TrialEnd.TIMED_OUT: "time_limit",
    TrialEnd.OUT_OF_MEMORY: "out_of_memory",
    TrialEnd.FAILED: "script_failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastWish:
    """How a command is forecast.

    Attributes:
        cap_bytes: the address space that the child may use; None for no bound.
        measure: run each different operator once, alone, for what it takes for itself.
        limit_s: seconds in which the second update has to end.
    """

    cap_bytes: int | None = None
    measure: bool = False
    limit_s: float = 600.0


def forecast_in_child(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    folder: Path,
    cwd: Path,
    wish: ForecastWish,
) -> CommandForecast:
    """Run the command until a step was forecast; say why there is no peak where there is none.

    Args:
        argv: the command.
        environment: the user's.
        folder: of the child; it must not exist yet.
        cwd: where the command runs.
        wish: how.

    Raises:
        NotStartedError: the command cannot be started.
        ContainmentError: nothing here keeps it from doing harm.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    containment = probe(folder.parent, allow_unsafe=False, share_network=False)

    def begin(
        environment: Mapping[str, str], *, folder: Path, stdin: Path | None
    ) -> ContainedProcess | NotStarted:
        return start_contained(
            argv, environment, cwd=cwd, folder=folder, containment=containment, stdin=stdin
        )

    return forecast_script(begin, argv, environment, folder=folder, wish=wish)


def forecast_script(
    begin: Start,
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    folder: Path,
    wish: ForecastWish,
    stdin: Path | None = None,
) -> CommandForecast:
    """Forecast with a child that the caller can start; `begin` starts it, `stdin` is what it reads.

    Raises:
        NotStartedError: the command cannot be started.
    """
    asked = {"measure": wish.measure, "cap_bytes": wish.cap_bytes}
    start = TrialStart(
        folder=folder,
        argv=argv,
        environment={**environment, **_EAGER},
        plan={"schema": SCHEMA, "mode": "forecast", "levers": [], "forecast": asked},
        stdin=stdin,
    )
    limits = TrialLimits(start_s=wish.limit_s, silence_s=wish.limit_s, total_s=wish.limit_s)
    trial = start_trial(begin, start, limits)
    if isinstance(trial, NotStarted):
        raise NotStartedError(f"`{argv[0]}` {trial.reason}.", exit_code=trial.exit_code)
    reader, found = LineReader(folder / files.FORECAST), list[Line]()

    def is_over(_: TrialWatch) -> bool:
        found.extend(one for one in reader.read() if kind_of(one) == kinds.FORECAST)
        return is_complete(found)

    try:
        ended = trial.wait(is_over)
    finally:
        trial.close()
    is_over(trial.watch)
    return _forecast_of(found, ended, wish)


def is_complete(found: Sequence[Line]) -> bool:
    """Return whether each rank has said what it needs, or one that it cannot say it."""
    lines: list[Any] = list(found)
    if any(line["facts"] is None for line in lines):
        return True
    return bool(lines) and len(_by_rank(lines)) >= max(line.get("world_size", 1) for line in lines)


def _by_rank(lines: Sequence[Any]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for line in lines:
        found.setdefault(int(line.get("rank", 0)), line)
    return dict(sorted(found.items()))


def _forecast_of(
    found: list[Line], ended: TrialEnded | None, wish: ForecastWish
) -> CommandForecast:
    lines: list[Any] = [*found]
    if not is_complete(lines):
        lines.append({"facts": None, "unknown": [_why(ended)]})
    failed = next((line for line in lines if line["facts"] is None), None)
    line = failed or max(lines, key=lambda one: int(one["facts"]["peak"]["estimate"]))
    facts = line["facts"] or {}
    return CommandForecast(
        memory=_memory_of(line, wish),
        script=facts.get("script") or {},
        process_bytes=facts.get("process_bytes"),
        ranks=tuple(
            RankForecast(rank=rank, world_size=int(one["world_size"]), memory=_memory_of(one, wish))
            for rank, one in _by_rank([one for one in lines if "world_size" in one]).items()
            if one["world_size"] > 1
        ),
    )


def _memory_of(line: Any, wish: ForecastWish) -> MemoryForecast:
    facts, unknown = line["facts"], tuple(map(str, line["unknown"]))
    if facts is None:
        return MemoryForecast(peak=None, by_category={}, unknown=unknown, how="none")
    return MemoryForecast(
        peak=peak_range(facts["peak"], facts["by_category"], unknown),
        by_category={str(name): int(size) for name, size in facts["by_category"].items()},
        unknown=unknown,
        how="measured" if wish.measure else "fake",
        phase=facts["phase"],
        operator=facts["operator"],
    )


def _why(ended: TrialEnded | None) -> str:
    """Return the word for a child that forecast nothing, with the last line that it wrote."""
    if ended is None:
        return "never_steps"
    last = ended.text.rpartition("\n")[2].strip()
    word = _ENDINGS[ended.end]
    return word if ended.end is TrialEnd.FINISHED or not last else f"{word}: {last}"
