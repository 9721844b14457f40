"""Finds the metric of a finished run: in its output, or in a file that it wrote.

In: where the metric is, and the folder of a run. Out: points of evaluation, and the metric there.
A file is copied out of the contained child by the command that wrote it.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from steptime.app.stored.run_tables import POINTS
from steptime.errors import MissingExtraError, RunsError, UsageError
from steptime.record.regular_file import read_regular

FILES, BOARD = ("csv", "json"), "tb"
_EVENTS = "*tfevents*"
_TAIL_LINES = 5
_LOST = r"[+-]?(?i:nan|inf(?:inity)?)\b"
"""How a run that diverged prints its metric, whatever digits a pattern asks for."""
_LIMIT_S = 10
_MATCHER = r"""
import json, re, sys
text, group, found = sys.stdin.read(), int(sys.argv[2]), []
exponent = re.compile(r"[eE][+-]?\d+")
for match in re.finditer(sys.argv[1], text):
    rest = exponent.match(text, match.end(group))
    value = (match[group] or "") + (rest[0] if rest else "")
    found.append((match.groupdict().get("step"), value))
json.dump(found, sys.stdout)
"""
"""Finds the metric, in a child: a pattern may take longer than anybody waits. Of 1e-05, `[0-9.]+`
leaves the exponent out, so that follows."""
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P<\w+>|\((?!\?)|\(|\)", re.DOTALL)
"""What of a regular expression opens and closes its groups; escapes and classes as they are."""


def check_metric(metric: str) -> None:
    """Refuse a metric of no known kind.

    Raises:
        UsageError: it is no regular expression with a group, and names no file or tag.
        MissingExtraError: TensorBoard's reader is wanted and not installed.
    """
    kind, _, rest = metric.partition(":")
    if kind in FILES:
        if not all(rest.partition(":")[::2]):
            raise UsageError(f"--metric {kind}: needs a file and a name, as {kind}:FILE:NAME.")
        return
    if kind == BOARD:
        if not rest:
            raise UsageError("--metric tb: needs a tag, as tb:loss/val.")
        _accumulator()
        return
    try:
        groups = re.compile(metric).groups
    except re.error as error:
        raise UsageError(f"--metric is no regular expression: {error}.") from error
    if groups <= ("(?P<step>" in metric):
        raise UsageError(
            "the pattern of --metric has no group.", hint="Write: --metric 'val loss ([0-9.]+)'"
        )


def with_kept(command: str, metric: str, kept: Path, *, every_s: float | None = None) -> str:
    """Return the command; with what copies the file of the metric out of the child, to `kept`.

    With `every_s`, it is also copied so often while the command runs, once the command has written
    it: what an earlier run left there is none of this one [s].
    """
    kind, _, rest = metric.partition(":")
    place = shlex.quote(str(kept))
    if kind in FILES:
        file = shlex.quote(rest.partition(":")[0])
        last = f"( {command}\n); code=$?; cp -- {file} {place}; exit $code"
        copy = f"[ {file} -nt {place}.began ] && cp -- {file} {place}.new"
        return _repeated(f"{copy} && mv -- {place}.new {place}", last, place, every_s)
    if kind == BOARD:  # only what this run wrote: older files lie there of the user's own runs
        began = shlex.quote(f"{kept}.began")
        found = f"find . -name {shlex.quote(_EVENTS)} -newer {began}"
        copy = f"number=0; {found} | while IFS= read -r file; do number=$((number + 1)); "
        copy += f'cp -- "$file" {place}/$number.tfevents; done'
        last = f"( {command}\n); code=$?; {copy}; exit $code"
        return f"mkdir {place}; {_repeated(copy, f': > {began}; {last}', place, every_s)}"
    return command


def _repeated(copy: str, last: str, place: str, every_s: float | None) -> str:
    """Return a command with another one beside it that copies so often [s]."""
    if every_s is None:
        return last
    beside = f"( while sleep {every_s}; do {copy}; done ) > /dev/null 2>&1 &"
    return f": > {place}.began; {beside} {last}"


KEPT = "metric"
"""Name of what is copied out, in the folder of a run."""


def read_metric(metric: str, folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return where a run was evaluated, and its metric there; empty where it said none."""
    kind, _, rest = metric.partition(":")
    name = rest.partition(":")[2]
    if kind == BOARD:
        found = list(_in_events(sorted((folder / KEPT).glob(_EVENTS)), rest))
    elif kind in FILES:
        path = folder / KEPT
        text = _text_of(path)
        found = list((_in_csv if kind == "csv" else _in_json)(text, name))
    else:
        found = [*_in_output(metric, _output(folder))]
    points = [at for at, _ in found]
    if any(b <= a for a, b in pairwise(points)):
        points = [float(number) for number in range(1, len(found) + 1)]
    return tuple(points), tuple(value for _, value in found)


def _output(folder: Path) -> str:
    """Return what a run wrote: the standard output, then the standard error."""
    paths = (folder / "stdout", folder / "stderr")
    return "\n".join(map(_text_of, paths))


def _text_of(path: Path) -> str:
    return read_regular(path).decode("utf-8", errors="replace") if path.exists() else ""


def last_lines(folder: Path) -> str:
    """Return the end of what a run wrote."""
    lines = [line for line in _output(folder).splitlines() if line.strip()]
    return " / ".join(lines[-_TAIL_LINES:]) or "it wrote nothing"


@lru_cache(maxsize=1)  # a run that is watched is read more often than it writes
def _in_output(pattern: str, text: str) -> tuple[tuple[float, float], ...]:
    """Return the first group of each match but `step`, at the group `step`."""
    value = 2 if re.compile(pattern).groupindex.get("step") == 1 else 1
    words = [sys.executable, "-I", "-S", "-c", _MATCHER, or_lost(pattern, value), str(value)]
    try:
        done = subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_LIMIT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise RunsError(
            f"the pattern of --metric takes more than {_LIMIT_S} s on what one run wrote.",
            hint="A repeat inside a repeat, as in '(a+)+', can take forever: write it without.",
        ) from error
    return tuple(_placed(json.loads(done.stdout)))


def or_lost(pattern: str, group: int) -> str:
    """Return the pattern; its group also matches what is no finite number."""
    opened, number = list[tuple[int, int]](), 0
    for part in _PARTS.finditer(pattern):
        if part[0] == ")":
            which, inside = opened.pop()
            if which == group:
                own, rest = pattern[inside : part.start()], pattern[part.start() :]
                return f"{pattern[:inside]}(?:{_LOST}|{own}){rest}"
        elif part[0].startswith("("):
            counts = part[0] != "(" or pattern[part.end() : part.end() + 1] != "?"
            number += counts
            opened.append((number if counts else 0, part.end()))
    return pattern


def _in_csv(text: str, column: str) -> Iterator[tuple[float, float]]:
    """Yield a column."""
    rows = csv.DictReader(text.splitlines())
    yield from _placed((_point_of(row), row.get(column)) for row in rows)


def _in_json(text: str, key: str) -> Iterator[tuple[float, float]]:
    """Yield a key of one object, of each object of a list, or of each line."""
    documents: list[Any]
    try:
        found = json.loads(text)
        documents = found if isinstance(found, list) else [found]
    except ValueError:
        documents = [one for line in text.splitlines() if (one := _loaded(line)) is not None]
    rows = [one if isinstance(one, dict) else {} for one in documents]
    yield from _placed((_point_of(row), row.get(key)) for row in rows)


def _in_events(paths: Iterable[Path], tag: str) -> Iterator[tuple[float, float]]:
    """Yield a scalar of TensorBoard's files, in the order of its steps."""
    found: dict[float, float] = {}
    for path in paths:
        events = _accumulator()(str(path), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        tags = events.Tags()
        if tag in tags["scalars"]:
            found |= {float(one.step): float(one.value) for one in events.Scalars(tag)}
        elif tag in tags["tensors"]:  # as TensorFlow 2 writes scalars
            from tensorboard.util.tensor_util import make_ndarray

            found |= {
                float(one.step): float(make_ndarray(one.tensor_proto))
                for one in events.Tensors(tag)
            }
    yield from sorted(found.items())


def _accumulator() -> Any:
    """Return TensorBoard's reader of one file.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            "--metric tb: needs TensorBoard's reader, which is not installed.",
            needs="steptime[tensorboard]",
        ) from error
    return EventAccumulator


def _placed(found: Iterable[tuple[object, object]]) -> Iterator[tuple[float, float]]:
    """Yield the numbers, each at its point, or at its place among them where none is known."""
    for number, (point, text) in enumerate(found, start=1):
        at, value = _number(point), _number(text)
        if value is not None:
            yield (float(number) if at is None else at), value


def _point_of(row: Mapping[str, object]) -> object:
    return next((row[name] for name in POINTS if row.get(name) not in (None, "")), None)


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _number(text: object) -> float | None:
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
