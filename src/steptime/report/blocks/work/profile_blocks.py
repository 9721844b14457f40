"""Makes the blocks on what a profiler saw of a few steady steps.

In: a Measurement whose user asked for a profile. Out: lines: the share of each class, idle times of
a device, the busiest operators, and where the trace is. If something was not seen, a line says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steptime.core.printable import printable
from steptime.core.units import format_percent, format_seconds
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.profiled import (
    NSYS,
    ClassTime,
    DeviceProfile,
    HostProfile,
    OperatorTime,
    Profile,
    RankProfile,
)
from steptime.report.blocks.phrasing import joined, shortened
from steptime.report.blocks.values import Block, Labeled
from steptime.report.words.run.algorithm_words import ALGORITHMS

# Why there is nothing to show of the window.
REASONS: Mapping[str, str] = {
    "no_steps": "no step was seen",
    "not_said": "the process said nothing of it: it was killed, or left without its end",
    "too_few_updates": "the script made {num} steps; it was to begin at step {first}",
    "ended_in_window": "the script ended in its first step",
    "own_profiler": "the script uses a profiler of its own, and torch allows one alone",
    "no_device": "the script used no CUDA device",
    "failed": "the profiler failed; the failures of Steptime are in the record",
    "not_written": "its file could not be written",
    "damaged_trace": "its file is cut or damaged",
    "trace_gone": "its file is gone",
    "large_trace": "its file is too large to be read here; Perfetto may open it",
    "no_step_in_trace": "no whole step is in its file",
}

_WORTH_NAMING = 0.01
_NUM_NAMED = 7
_NUM_BUSIEST = 5
_MAX_NAME = 60


def profile_blocks(m: Measurement) -> list[Block]:
    """Return the lines on the profile; there are none without a profile."""
    profile = m.profile
    if profile is None:
        return []
    seen = [rank for rank in profile.ranks if rank.missing is None]
    if not seen:
        return [Labeled("profile", f"not measured: {describe_reason(profile, m)}", style="yellow")]
    first = seen[0]
    lines: list[Block] = [Labeled("profile", describe_window(profile, first, len(seen)))]
    lines += _what_ran(first)
    return [*lines, Labeled("trace", describe_file(profile, first, m))]


def rank_profile_blocks(rank: RankProfile) -> list[Block]:
    """Return the lines on one rank that was profiled because somebody asked."""
    text = f"{rank.num_steps} steps under torch.profiler"
    if rank.host is not None and rank.num_steps:
        text += f", {format_seconds(rank.host.window_s / rank.num_steps)} each"
    lines: list[Block] = [Labeled("profile", text + _describe_faults(rank))]
    lines += _what_ran(rank)
    return lines if rank.file is None else [*lines, Labeled("trace", describe_trace(rank.file))]


def describe_trace(file: str) -> str:
    """Say where a trace is, and what opens it."""
    return f"{printable(file)} in the folder of the run; open it at https://ui.perfetto.dev"


def _what_ran(first: RankProfile) -> list[Block]:
    """Return what a window's trace shows: devices and host, and the busiest operators."""
    lines: list[Block] = []
    if first.host is not None and first.devices:
        for device in first.devices:
            lines += [Labeled(f"device {device.device}", _describe_device(device))]
        lines += [Labeled("host", _describe_host(first.host))]
        lines += _busiest(first.devices[0].kernels, first.num_steps)
    elif first.host is not None:
        lines += [Labeled("", _describe_host(first.host))]
        lines += _busiest(first.host.operators, first.num_steps)
    return lines


def describe_reason(profile: Profile, m: Measurement) -> str:
    """Say why there is nothing to show."""
    word = profile.missing or ""
    text = REASONS.get(word, word)
    return text.format(num=f"{m.num_steps:,}", first=f"{profile.wish.first_step:,}")


def describe_window(profile: Profile, rank: RankProfile, num_ranks: int) -> str:
    """Return `steps 30 to 32 under torch.profiler, 1.9 ms each; they count in nothing above`."""
    tool = "Nsight Systems" if profile.wish.tool == NSYS else "torch.profiler"
    text = f"{_steps(rank)} under {tool}"
    if rank.host is not None and rank.num_steps:
        text += f", {format_seconds(rank.host.window_s / rank.num_steps)} each"
    if len(profile.ranks) > 1:
        text += f", of rank {rank.rank} ({num_ranks} of {len(profile.ranks)} ranks profiled)"
    return text + "; slower for it, and in no other figure" + _describe_faults(rank)


def _describe_faults(rank: RankProfile) -> str:
    """Return what else fell into the window, or that it was cut short."""
    text = ". The script ended before that" if rank.is_cut else ""
    if rank.is_mixed:
        text += ". Something else fell into them: an evaluation, a checkpoint or a compilation"
    return text


def _steps(rank: RankProfile) -> str:
    if rank.first_step is None or rank.num_steps < 1:
        return f"{rank.num_steps} steps"
    last = rank.first_step + rank.num_steps - 1
    return f"step {last}" if rank.num_steps == 1 else f"steps {rank.first_step} to {last}"


def _describe_host(host: HostProfile) -> str:
    """Return `matmul 41 %, optimizer 22 %, ... · outside of operators (Python) 15 %, 3 % ...`."""
    python = f"outside of operators (Python) {format_percent(_share(host.python_s, host))}"
    if _share(host.loader_s, host) >= _WORTH_NAMING:
        python += f", {format_percent(_share(host.loader_s, host))} in the loader"
    parts = [*_classes(host.classes), python]
    if _share(host.sync_s, host) >= _WORTH_NAMING:
        parts.append(f"waiting for the device {format_percent(_share(host.sync_s, host))}")
    return joined(parts)


def _share(value_s: float, host: HostProfile) -> float:
    return value_s / host.window_s if host.window_s else 0.0


def _describe_device(device: DeviceProfile) -> str:
    """Return `busy 71 % · host wait 20 % · kernel wait 9 % · exposed communication 5 % · ...`."""
    whole = device.window_s or 1.0
    parts = [f"busy {format_percent(device.busy_s / whole)}"]
    for name, value_s in (
        ("host wait", device.host_wait_s),
        ("kernel wait", device.kernel_wait_s),
        ("idle of unknown reason", device.unknown_wait_s),
        ("exposed communication", device.exposed_communication_s),
    ):
        if value_s > 0:
            parts.append(f"{name} {format_percent(value_s / whole)}")
    return joined([*parts, *_classes(device.classes)])


def _classes(classes: Iterable[ClassTime]) -> list[str]:
    large = [one for one in classes if one.fraction >= _WORTH_NAMING]
    return [f"{one.name} {format_percent(one.fraction)}" for one in large[:_NUM_NAMED]]


def _busiest(operators: Iterable[OperatorTime], num_steps: int) -> list[Block]:
    lines: list[Block] = []
    for one in list(operators)[:_NUM_BUSIEST]:
        lines += [Labeled("" if lines else "busiest", _describe_operator(one, num_steps))]
    return lines


def _describe_operator(one: OperatorTime, num_steps: int) -> str:
    """Return `aten::mm 57 µs per step in 3 calls (matmul) [128, 32], [32, 64]`."""
    calls = one.num / max(1, num_steps)
    count = f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.1f}"
    name = shortened(one.name, _MAX_NAME)
    text = f"{name} {format_seconds(one.self_s / max(1, num_steps))} per step"
    text += f" in {count} {'call' if count == '1' else 'calls'} ({describe_class(one)})"
    if one.launched_by is not None:
        text += f" by {shortened(one.launched_by, _MAX_NAME)}"
    if one.where is not None:
        text += f" from {printable(one.where)}"
    elif one.shapes is not None:
        text += f" {shortened(one.shapes, _MAX_NAME)}"
    return text


def describe_class(one: OperatorTime) -> str:
    """Return `matmul`, or `convolution by Winograd` where the kernel's name says how."""
    if one.algorithm is None:
        return one.kind
    return f"{one.kind} by {ALGORITHMS.get(one.algorithm, one.algorithm)}"


def describe_file(profile: Profile, rank: RankProfile, m: Measurement) -> str:
    """Say where the trace is, and what opens it."""
    file = printable(profile.file or rank.file or "")
    if profile.wish.tool == NSYS:
        return f"{file} in the folder of run {m.run_id}; open it with nsys-ui"
    return f"{file} in the folder of run {m.run_id}; open it at https://ui.perfetto.dev"
