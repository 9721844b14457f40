"""Small files of the kernel: a text, a number or a list; None or empty where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steptime.record.numbers_told import whole_number_in

_MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFiles:
    """Where the kernel's files are; tests make their own."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    root: Path = Path("/")


def read_text(path: Path) -> str | None:
    """Return the text without blanks around it; None if it cannot be read or is empty."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace").strip() or None
    except (OSError, ValueError):  # a path of the machine may contain a zero byte
        return None


def read_bytes(path: Path, *, max_bytes: int) -> bytes | None:
    """Return the first bytes; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(max_bytes)
    except (OSError, ValueError):
        return None


def read_lines(path: Path) -> list[str]:
    """Return the lines; none if the file cannot be read."""
    return (read_text(path) or "").splitlines()


def read_int(path: Path) -> int | None:
    """Return the number; None for a word such as `max`, and without a file."""
    with suppress(ValueError):
        return int(read_text(path) or "")
    return None


def read_kib(path: Path, word: str) -> int | None:
    """Return the bytes of a line `word: 1234 kB`, as in meminfo; a node's lines have a prefix."""
    for line in read_lines(path):
        name, _, rest = line.partition(":")
        if name.split()[-1:] == [word]:
            with suppress(ValueError, IndexError):
                return int(rest.split()[0]) * 1024
    return None


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, numbers in order of value; none if it cannot be read."""
    try:
        return sorted((path.name for path in folder.iterdir()), key=_natural)
    except OSError:
        return []


def link_name(path: Path) -> str | None:
    """Return the last part of what a link points to, such as a driver or a subsystem."""
    with suppress(OSError, ValueError):
        return path.resolve(strict=True).name
    return None


def parse_cpu_list(text: str | None) -> set[int]:
    """Return the numbers of a list such as `0-3,8`; unreadable parts are left out."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        with suppress(ValueError):
            found.update(range(int(first), int(last or first) + 1))
    return found


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the list of numbers as the kernel writes it."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    parts = re.findall(r"\d+|\D+", name)
    numbers = map(whole_number_in, parts)
    return tuple(
        (-1, part) if number is None else (number, "")
        for part, number in zip(parts, numbers, strict=True)
    )
