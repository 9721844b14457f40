"""Lists what a run was made with, as traits that can be compared.

In: a Measurement and the CommandRecord of its run. Out: traits. `alike` decides which of them
matter, and finds those that differ.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

from steptime.compare.values import Trait
from steptime.core.units import format_bytes
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import LoaderUse

_LAUNCHERS = ("torch.distributed", "accelerate", "deepspeed", "coverage", "cProfile")
"""Modules that start another script: `python -m torch.distributed.run train.py`."""


def traits_of(measurement: Measurement, record: CommandRecord) -> tuple[Trait, ...]:
    """Return everything that is known about how a run was made."""
    found = [
        *_command_traits(record),
        *_rank_traits(measurement, record),
        *_machine_traits(record),
        *_environment_traits(record),
        *_recipe_traits(measurement),
    ]
    return tuple(Trait(what=what, name=name, value=value) for what, name, value in found)


Row = tuple[str, str, str]


def _command_traits(record: CommandRecord) -> Iterator[Row]:
    yield "script", "", script_of(record.argv)
    if record.script_hash is not None:
        yield "code", ", ".join(record.script_files), record.script_hash
    if record.git_revision is not None:
        yield "revision", "", record.git_revision
    if record.cwd is not None:
        yield "folder", "", record.cwd
    script = script_of(record.argv)
    for name, value in read_arguments(record.argv):
        if _last_part(value) != script:  # the script is a separate trait
            yield "argument", name, value
    for place in record.places:
        if _last_part(place.path) != script:
            yield "place", _relative(place.path, record.cwd), place.filesystem


def _relative(path: str, folder: str | None) -> str:
    """Return the path relative to the folder: two checkouts hold the same files."""
    if folder is None or not path.startswith(folder):
        return path
    return path[len(folder) :].lstrip("/") or "."


def _rank_traits(measurement: Measurement, record: CommandRecord) -> Iterator[Row]:
    yield "version", "steptime", record.steptime_version
    if not measurement.ranks:
        return
    yield "ranks", "", str(measurement.num_ranks)
    first = measurement.ranks[0]
    yield "version", "python", first.python_version
    yield "version", "torch", first.torch_version
    yield "device", "", first.device_name or first.device
    if first.num_threads is not None:
        yield "threads", "", str(first.num_threads)
    yield from (("version", name, value) for name, value in (first.versions or {}).items())
    if first.input_shapes:
        yield "input", "inputs", ", ".join(first.input_shapes)
    for loader in first.loaders:
        yield from _loader_traits(loader)


def _loader_traits(loader: LoaderUse) -> Iterator[Row]:
    """Yield the settings of one data set's loader; several loaders of one class share a name."""
    for name in ("batch_size", "num_workers", "pin_memory", "persistent_workers"):
        yield "loader", f"{loader.dataset} {name}", str(getattr(loader, name))
    if loader.prefetch_factor is not None:
        yield "loader", f"{loader.dataset} prefetch_factor", str(loader.prefetch_factor)


def _machine_traits(record: CommandRecord) -> Iterator[Row]:
    machine = record.machine
    if machine.cpu is not None:
        yield "machine", "cpu", machine.cpu
    if machine.num_cores is not None:
        yield "machine", "num_cores", str(machine.num_cores)
    if machine.memory_bytes is not None:
        # The kernel's own share varies: the first two digits belong to the machine.
        yield "machine", "memory", format_bytes(float(f"{machine.memory_bytes:.1e}"))
    if machine.memory_limit_bytes is not None:
        yield "machine", "memory_limit", format_bytes(machine.memory_limit_bytes)


def _environment_traits(record: CommandRecord) -> Iterator[Row]:
    told = record.environment or {}
    yield from (("environment", name, value) for name, value in told.items())
    yield from (("variable", name, "set") for name in record.environment_names if name not in told)


def _recipe_traits(measurement: Measurement) -> Iterator[Row]:
    use = measurement.recipe
    for lever in () if use is None else use.levers:
        settings = json.dumps(dict(lever.settings), sort_keys=True)
        yield "lever", lever.name, settings if lever.error is None else "off, for it failed"


def script_of(argv: Sequence[str]) -> str:
    """Return the name of what is trained: the command's first script, else module, else program."""
    for word in argv:
        if word.endswith(".py"):
            return _last_part(word)
    for before, word in itertools.pairwise(argv):
        if before == "-m" and not word.startswith(_LAUNCHERS):
            return word
    scripts = [word for word in argv if word.endswith((".sh", ".bash"))]
    return _last_part(scripts[0] if scripts else argv[0]) if argv else ""


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def read_arguments(argv: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the options of a command with their values, and the other words by their place.

    Only the script knows which options take a value, so a word after an option counts as its value
    unless it is an option itself. An option that is given several times has all of its values.
    """
    found: dict[str, list[str]] = {}
    place, option = 0, ""
    for word in argv:
        if _is_option(word):
            option, has_value, value = word.partition("=")
            found.setdefault(option, [])
            if has_value:
                found[option].append(value)
                option = ""
        elif option:
            found[option].append(word)
            option = ""
        else:
            found[f"word {place}"] = [_last_part(word) if place == 0 else word]
            place += 1
    return tuple((name, " ".join(values)) for name, values in found.items())


def _is_option(word: str) -> bool:
    """Return whether a word begins with a dash and is not a number."""
    return len(word) > 1 and word[0] == "-" and not word[1:2].isdigit() and word[1] != "."
