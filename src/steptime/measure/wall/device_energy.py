"""Sums up what a run's devices drew, and how long they were too hot, from `watch`'s samples.

In: lines `d` of `host.jsonl`. Out: joules, and a share of the samples. A device that counts its
energy is asked by its counter; of one that tells its power alone, power times time is taken.
"""

from __future__ import annotations

from steptime.record.lines import Line

_FAULTS = ("thermal", "power_brake", "hardware")
"""Reasons for a lower clock that are no setting, and no cap that a healthy device reaches."""

_MAX = 1e15
"""Joules, watts and seconds beyond it are no measurement."""


class EnergyMeter:
    """The devices of a run, by what their samples say so far."""

    def __init__(self) -> None:
        self._devices: dict[str, _MeteredDevice] = {}

    def add(self, line: Line) -> None:
        """Take a sample; one of another shape says nothing."""
        name, when = line.get("device"), _number(line.get("t_unix_s"))
        if isinstance(name, str) and when is not None:
            device = self._devices.setdefault(name, _MeteredDevice())
            device.add(when, _number(line.get("energy_j")), _number(line.get("power_w")))
            device.is_of_job |= line.get("job") is True
            reasons = line.get("throttle")
            reasons = reasons if isinstance(reasons, list) else []
            device.num_samples += 1
            device.num_throttled += any(reason in _FAULTS for reason in reasons)

    def total_j(self) -> float | None:
        """Return what the command's devices drew between their first and last samples [J].

        Where no device is known to be the command's, all count. It is None where there is no
        device, and where one of them says nothing.
        """
        drawn = [device.energy_j() for device in self._own()]
        known = [energy_j for energy_j in drawn if energy_j is not None]
        return sum(known) if known and len(known) == len(drawn) else None

    def throttled_fraction(self) -> float | None:
        """Return the share of the samples of the most throttled device of the command."""
        return max((one.num_throttled / one.num_samples for one in self._own()), default=None)

    def _own(self) -> list[_MeteredDevice]:
        known = list(self._devices.values())
        return [device for device in known if device.is_of_job] or known


class _MeteredDevice:
    """One device: its counter at first and at last, and the energy by its power."""

    def __init__(self) -> None:
        self.is_of_job = False
        self.num_samples = self.num_throttled = 0
        self._first_j: float | None = None
        self._last_j: float | None = None
        self._power_j: float | None = None
        self._before_s: float | None = None

    def add(self, when: float, energy_j: float | None, power_w: float | None) -> None:
        if energy_j is not None:
            self._first_j = energy_j if self._first_j is None else self._first_j
            self._last_j = energy_j
        if power_w is not None and self._before_s is not None:
            self._power_j = (self._power_j or 0.0) + power_w * max(0.0, when - self._before_s)
        self._before_s = when

    def energy_j(self) -> float | None:
        """Return what it drew [J]; None where fewer than two samples say it."""
        if self._first_j is not None and self._last_j is not None and self._last_j > self._first_j:
            return self._last_j - self._first_j
        return self._power_j


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < _MAX else None
