"""Makes the profile of a run, from what its ranks reported and the traces in its folder.

In: a run's folder and its records. Out: a `Profile`; a trace that is cut, damaged or gone is a
reason, never an error. This module reads the traces; `measure.profile.profile_host` and
`measure.profile.profile_device` fold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from steptime.launch.values import CommandRecord
from steptime.measure.fold.rank_fold import Folded
from steptime.measure.fold.run_records import RunRecords
from steptime.measure.fold.seen_lines import WindowSeen
from steptime.measure.profile.profile_device import fold_devices
from steptime.measure.profile.profile_host import IsUsers, fold_host
from steptime.measure.profile.profile_trace import TooLargeError, Trace, collect
from steptime.measure.profile.trace_file import DamagedTraceError, compress, read_events
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.model.profiled import FOLDER, NSYS, Profile, RankProfile
from steptime.record.places import NS


def read_profile(folder: Path, folded: Folded) -> Profile | None:
    """Return the profile of a run; None where nobody asked for it."""
    records = folded.records
    wish = records.command.profile
    if wish is None:
        return None
    ranks = [_read_rank(folder, records, rank) for rank in folded.steps]
    missing = None if ranks else "no_steps"
    reasons = {rank.missing for rank in ranks}
    if ranks and None not in reasons:
        missing = ranks[0].missing
    file = None
    if wish.tool == NSYS:
        file = next((name for name in _names(folder, "*.nsys-rep")), None)
        missing = missing or (None if file is not None else "not_written")
    return Profile(wish=wish, ranks=tuple(ranks), missing=missing, file=file)


def pack_traces(folder: Path) -> None:
    """Compress the traces of a run that has ended.

    Raises:
        OSError: a trace cannot be written; the old file stays.
    """
    for path in sorted((folder / FOLDER).glob("*.pt.trace.json")):
        compress(path)


def _names(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the files of the profile, relative to the run's folder."""
    for path in sorted((folder / FOLDER).glob(pattern)):
        yield f"{FOLDER}/{path.name}"


def _read_rank(folder: Path, records: RunRecords, rank: RankSteps) -> RankProfile:
    seen, number = rank.signals.window, rank.head.rank
    if seen is None:
        return RankProfile(rank=number, missing="not_said")
    if seen.missing is not None:
        return RankProfile(rank=number, missing=seen.missing)
    bare = _describe(seen, records, rank)
    if seen.file is None:
        return bare
    path = folder / FOLDER / Path(seen.file).name
    packed = path.with_name(f"{path.name}.gz")
    path = packed if packed.is_file() else path
    return fold_trace(bare, path, records.command)


def _describe(seen: WindowSeen, records: RunRecords, rank: RankSteps) -> RankProfile:
    """Return what the rank itself reported of its window."""
    began_s = seen.t[0] * NS
    later = (place for place, end_s in enumerate(rank.steps.end_s) if began_s < end_s)
    start_s = rank.head.t_unix_s + began_s - records.command.started_unix_s
    return replace(
        profile_of_window(seen, rank=rank.head.rank),
        first_step=next(later, None),
        start_s=start_s if start_s > 0 else None,
    )


def profile_of_window(seen: WindowSeen, *, rank: int) -> RankProfile:
    """Return what a window says of itself, without its place among the steps."""
    began_s, ended_s = (t * NS for t in seen.t)
    return RankProfile(
        rank=rank,
        num_steps=seen.steps,
        is_cut=seen.is_cut,
        is_mixed=seen.is_mixed,
        duration_s=ended_s - began_s,
        write_s=seen.end_ns * NS,
    )


def fold_trace(bare: RankProfile, path: Path, command: CommandRecord) -> RankProfile:
    """Return the profile of a rank with what its trace shows.

    Args:
        bare: what the rank itself reported.
        path: the trace, in the folder of the run's profiles.
        command: the run's, which says where the user's files are.
    """
    missing: str | None = None
    trace: Trace | None = None
    try:
        trace = collect(read_events(path), num_steps=bare.num_steps)
    except DamagedTraceError:
        missing = "damaged_trace" if path.is_file() else "trace_gone"
    except TooLargeError:
        missing = "large_trace"
    file = f"{FOLDER}/{path.name}" if path.is_file() else None
    if trace is None:
        return replace(bare, file=file, missing=missing or "no_step_in_trace")
    host, launchers = fold_host(trace, is_users=_users_files(command))
    return replace(bare, file=file, host=host, devices=fold_devices(trace, launchers))


def _users_files(command: CommandRecord) -> IsUsers:
    """Return a test for the user's files; traces name files relative to folders of `sys.path`."""
    cwd = Path(command.cwd or ".")
    scripts = [cwd / word for word in command.argv if word.endswith(".py")]
    folders = {cwd, *(script.parent for script in scripts)}

    @cache
    def is_users(file: str) -> bool:
        with suppress(OSError, ValueError):
            return any((folder / file).is_file() for folder in folders)
        return False

    return is_users
