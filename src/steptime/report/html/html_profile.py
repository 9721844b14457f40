"""Makes the part of the page on the profiled steps: tables of classes, devices, operators and gaps.

In: a Measurement whose user asked for a profile. Out: markup, or None if nobody asked. The
sentences are those of the terminal's report.
"""

from __future__ import annotations

from collections.abc import Iterable

from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.profiled import (
    ClassTime,
    DeviceProfile,
    HostProfile,
    OperatorTime,
    Profile,
    RankProfile,
)
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.text.profile_text import (
    describe_class,
    describe_file,
    describe_reason,
    describe_window,
)

_ABSENT = "–"


def profile_part(m: Measurement) -> Html | None:
    """Return the profiled window of the first rank with a complete one; others get a line each."""
    profile = m.profile
    if profile is None:
        return None
    seen = [rank for rank in profile.ranks if rank.missing is None]
    if not seen:
        return tag("p", f"Not measured: {describe_reason(profile, m)}.", class_="dim")
    first = seen[0]
    parts = [
        tag("p", f"Profiled: {describe_window(profile, first, len(seen))}.", class_="dim"),
        *_tables(first),
        _ranks(profile) if len(profile.ranks) > 1 else None,
        tag("p", describe_file(profile, first, m), class_="dim"),
    ]
    return joined_html(parts)


def _tables(rank: RankProfile) -> Iterable[Html | None]:
    for device in rank.devices:
        yield _device(device)
        yield _operators(f"Kernels of device {device.device}", device.kernels, rank.num_steps)
    if rank.host is not None:
        yield _host(rank.host)
        yield _operators("Operators of the host", rank.host.operators, rank.num_steps)
        yield _gaps(rank.host)


def _host(host: HostProfile) -> Html:
    rest = [
        ("outside of operators (Python)", host.python_s),
        ("of it in the loader", host.loader_s),
        ("waiting for a device", host.sync_s),
    ]
    return _shares("Host", host.classes, rest, host.window_s)


def _device(device: DeviceProfile) -> Html:
    rest = [
        ("idle: host wait", device.host_wait_s),
        ("idle: kernel wait", device.kernel_wait_s),
        ("idle: of unknown reason", device.unknown_wait_s),
        ("communication, hidden or not", device.communication_s),
        ("communication, exposed", device.exposed_communication_s),
    ]
    return _shares(f"Device {device.device}", device.classes, rest, device.window_s)


def _shares(
    name: str, classes: Iterable[ClassTime], rest: Iterable[tuple[str, float]], window_s: float
) -> Html:
    """List each class with its number and share, then what belongs to no class."""
    rows = [
        [one.name, f"{one.num:,}", format_seconds(one.time_s), format_percent(one.fraction)]
        for one in classes
    ]
    rows += [
        [what, _ABSENT, format_seconds(time_s), format_percent(time_s / window_s)]
        for what, time_s in rest
        if time_s > 0 and window_s > 0
    ]
    return table([name, "number", "time", "share"], rows, name=f"{name}, under the profiler")


def _operators(name: str, operators: Iterable[OperatorTime], num_steps: int) -> Html | None:
    steps = max(1, num_steps)
    rows: list[list[Html | str]] = [
        [
            tag("code", one.name),
            describe_class(one),
            tag("code", one.where or one.launched_by or one.shapes or ""),
            format_count(one.num / steps),
            format_seconds(one.self_s / steps),
        ]
        for one in operators
    ]
    heading = [name, "class", "from, by, or of", "calls a step", "time a step"]
    return table(heading, rows, left=3, name=name) if rows else None


def _gaps(host: HostProfile) -> Html | None:
    rows: list[list[Html | str]] = [
        [tag("code", gap.after), tag("code", gap.before), format_seconds(gap.time_s)]
        for gap in host.longest_gaps
    ]
    heading = ["Longest gaps: after", "before", "time"]
    return table(heading, rows, left=2, name="Longest gaps between operators") if rows else None


def _ranks(profile: Profile) -> Html:
    rows = []
    for rank in profile.ranks:
        host, device = rank.host, rank.devices[0] if rank.devices else None
        python = _share(host.python_s, host.window_s) if host else _ABSENT
        busy = _share(device.busy_s, device.window_s) if device else _ABSENT
        exposed = _share(device.exposed_communication_s, device.window_s) if device else _ABSENT
        rows.append([f"{rank.rank}", rank.missing or "", python, busy, exposed])
    heading = ["rank", "not measured", "Python", "device busy", "exposed communication"]
    return table(heading, rows, left=2, name="Ranks, under the profiler")


def _share(value_s: float, window_s: float) -> str:
    return format_percent(value_s / window_s) if window_s > 0 else _ABSENT
