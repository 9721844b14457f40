"""The recipe file: writes a Recipe as TOML, reads it, and finds what differs from its proof.

In: a finished Study, or the text of a file. Out: a Recipe, or one clear error. tomllib reads the
file; the text is written here, because it is simple and people read it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.interval import Interval
from steptime.core.ranges import OutOfRangeError, check_numbers
from steptime.core.schema import SCHEMA
from steptime.core.store import write_text
from steptime.core.version import installed_version
from steptime.errors import RecipeError
from steptime.record.regular_file import read_regular
from steptime.tune.recipe.recipe_sites import read_site_tables, site_tables
from steptime.tune.values.fit_values import FitStudy
from steptime.tune.values.recipe_values import Proof, Recipe, Script
from steptime.tune.values.site_values import EditSites
from steptime.tune.values.study_values import (
    Applied,
    State,
    Study,
    TrainingScope,
)
from steptime.verify.values import Outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")

RECIPE = "tuned.toml"
"""The name of a recipe in its study's folder."""

_HEAD = """\
# Made by `steptime {verb}`: what was proven to {what}, for what, on what.
# Train with it: steptime run --recipe {name} -- COMMAND
"""
_CANDIDATE = """\
# Made by `steptime tune`: a lever that changes the training. Nothing has proven it yet.
# Judge it over seeds: steptime verify training, with `steptime run --recipe {name} -- COMMAND`
"""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_AGAIN = "Make a new one: steptime tune -- COMMAND"
_SETTING_TYPES = (str, bool, int, float)
_MAX_BYTES = 1 << 20  # a recipe has some 40 lines


# -- making one


def make_recipe(study: Study, *, script: Script, machine: MachineIdentity) -> Recipe:
    """The recipe of a study that found something faster.

    Raises:
        ValueError: it found nothing.
    """
    if study.speedup is None or study.quality is None or not study.recipe:
        raise ValueError(f"a study with a recipe is needed, got {study.outcome=}")
    proof = Proof(
        study_id=study.study_id,
        speedup=study.speedup,
        noise_floor=study.noise_floor,
        quality=study.quality.outcome,
        level=study.quality.level,
        baseline_step_s=study.baseline_step_s,
        tuned_step_s=study.tuned_step_s,
        device=study.device,
        torch_version=study.torch_version,
        loop_speedup=study.loop_speedup,
        seeds=None if study.seeds is None else study.seeds.outcome,
        seeds_n=None if study.seeds is None else study.seeds.num_runs,
        seeds_margin=None if study.seeds is None else study.seeds.margin,
    )
    return recipe_with(study, proof, script=script, machine=machine)


def recipe_with(
    study: Study | FitStudy, proof: Proof, *, script: Script, machine: MachineIdentity
) -> Recipe:
    """The recipe of a study, of any kind, with its proof."""
    return Recipe(
        version=installed_version(),
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(study.ended_unix_s)),
        script=script,
        machine=machine,
        levers=study.recipe,
        proof=proof,
        training=study.training,
        sites=study.sites,
    )


def write_recipe(path: Path, recipe: Recipe) -> None:
    """Write the file, whole or not at all; a file that is no recipe is left alone.

    Raises:
        RecipeError: there is such a file, or the recipe cannot be written.
    """
    check_output(path)
    try:
        write_text(path, render_recipe(recipe, name=path.name))
    except OSError as error:
        raise RecipeError(
            f"the recipe cannot be written: {error}.", hint="Name another file: --output FILE"
        ) from error


def check_output(path: Path) -> None:
    """Refuse to put a recipe where a file lies that is none.

    Raises:
        RecipeError: it is another file, or cannot be read.
    """
    try:
        text = _read(path)
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        text = ""
    try:
        parse_recipe(text, where=str(path))
    except RecipeError:
        raise RecipeError(
            f"{path} exists and is not a recipe of Steptime; it stays as it is.",
            hint="Name another file (--output FILE), or move this one away.",
        ) from None


def render_recipe(recipe: Recipe, *, name: str) -> str:
    """The file's text."""
    script, machine, proof = recipe.script, recipe.machine, recipe.proof
    tables: list[tuple[str, Mapping[str, object]]] = [
        (
            "steptime",
            {
                "schema": recipe.schema,
                "version": recipe.version,
                "date": recipe.date,
                "command": script.command,
                "script_files": script.files,
                "script_hash": script.hash,
            },
        ),
        (
            "machine",
            {
                "cpu": machine.cpu,
                "num_cores": machine.num_cores,
                "memory_bytes": machine.memory_bytes,
            },
        ),
        *_training_table(recipe.training),
        *((f"levers.{_key(lever.name)}", lever.settings) for lever in recipe.levers),
        (
            "evidence",
            {
                "study_id": proof.study_id,
                **_interval_rows("", proof.speedup),
                **_interval_rows("loop_", proof.loop_speedup),
                "limit_bytes": proof.limit_bytes,
                "peak_bytes": proof.peak_bytes,
                "noise_floor": proof.noise_floor,
                "quality": proof.quality.value,
                "level": proof.level,
                "baseline_step_s": proof.baseline_step_s,
                "tuned_step_s": proof.tuned_step_s,
                "device": proof.device,
                "torch_version": proof.torch_version,
                "seeds": None if proof.seeds is None else proof.seeds.value,
                "seeds_n": proof.seeds_n,
                "seeds_margin": proof.seeds_margin,
            },
        ),
        *site_tables(recipe.sites),
    ]
    verb, what = ("tune", "be faster") if proof.limit_bytes is None else ("fit", "fit")
    is_proven = proof.quality is not Outcome.INCONCLUSIVE
    head = (_HEAD if is_proven else _CANDIDATE).format(name=name, verb=verb, what=what)
    parts = [head, *(_table(title, rows) for title, rows in tables)]
    return "\n".join(parts)


def _training_table(scope: TrainingScope | None) -> list[tuple[str, Mapping[str, object]]]:
    if scope is None:
        return []
    rows = {"number": scope.number, "words": scope.words, "processes": scope.numbers}
    return [("training", rows)]


def _interval_rows(prefix: str, found: Interval | None) -> dict[str, float | int]:
    """The lines of an interval that may not be known."""
    if found is None:
        return {}
    numbers = {"speedup": found.estimate, "low": found.low, "high": found.high, "n": found.n}
    return {f"{prefix}{name}": number for name, number in numbers.items()}


def _table(title: str, rows: Mapping[str, object]) -> str:
    """A table; what was not observed has no line."""
    lines = [f"{_key(name)} = {_toml(value)}" for name, value in rows.items() if value is not None]
    return "".join(f"{line}\n" for line in (f"[{title}]", *lines))


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except for DEL, which TOML wants escaped.
        return json.dumps(storable(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)


def storable(text: str) -> str:
    """The text with what UTF-8 cannot hold (bytes of an odd file name) written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# -- reading one


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file.

    Raises:
        RecipeError: there is none, or it is damaged, foreign or of another schema.
    """
    try:
        text = _read(path)
    except FileNotFoundError:
        raise RecipeError(f"there is no recipe {path}.", hint=_AGAIN) from None
    except UnicodeDecodeError:
        raise RecipeError(f"{path} is not a text file, so it is no recipe.", hint=_AGAIN) from None
    except OSError as error:
        why = error.strerror or error
        raise RecipeError(f"the recipe {path} cannot be read: {why}.", hint=_AGAIN) from error
    return parse_recipe(text, where=str(path))


def _read(path: Path) -> str:
    return read_regular(path, max_bytes=_MAX_BYTES).decode("utf-8")


def parse_recipe(text: str, *, where: str) -> Recipe:
    """The recipe in a text.

    Raises:
        RecipeError: it is damaged, foreign or of another schema.
    """
    try:
        document = tomllib.loads(text)
        check_numbers(document)
    except RecursionError:
        raise RecipeError(f"{where} is damaged: it is nested too deeply.", hint=_AGAIN) from None
    except (tomllib.TOMLDecodeError, OutOfRangeError) as error:
        raise RecipeError(f"{where} is damaged: {error}.", hint=_AGAIN) from error
    except ValueError:  # Python makes no number of more than 4,300 digits
        what = "it holds a number with thousands of digits"
        raise RecipeError(f"{where} is damaged: {what}.", hint=_AGAIN) from None
    if not isinstance(document.get("steptime"), dict) or "levers" not in document:
        raise RecipeError(f"{where} is not a recipe of Steptime.", hint=_AGAIN)
    reader = _Reader(document=document, where=where)
    schema = reader.need("steptime", "schema", int)
    if schema != SCHEMA:
        raise RecipeError(
            f"{where} has schema {schema}; this Steptime reads schema {SCHEMA}.",
            hint="Use the Steptime that wrote it, or make a new one: steptime tune -- COMMAND",
        )
    return Recipe(
        version=reader.need("steptime", "version", str),
        date=reader.need("steptime", "date", str),
        script=Script(
            command=reader.texts("steptime", "command"),
            files=reader.texts("steptime", "script_files"),
            hash=reader.find("steptime", "script_hash", str),
        ),
        machine=MachineIdentity(
            cpu=reader.find("machine", "cpu", str),
            num_cores=reader.find("machine", "num_cores", int),
            memory_bytes=reader.find("machine", "memory_bytes", int),
        ),
        levers=reader.levers(),
        proof=_read_proof(reader),
        training=_read_training(reader),
        sites=_read_sites(reader, document),
    )


class _Reader:
    """Looks into a document of TOML; every error names the file, the table and the key."""

    def __init__(self, *, document: Mapping[str, Any], where: str) -> None:
        self._document = document
        self._where = where

    def wrong(self, what: str) -> RecipeError:
        return RecipeError(f"{self._where} is damaged: {what}.", hint=_AGAIN)

    def table(self, name: str) -> Mapping[str, Any]:
        found = self._document.get(name, {})
        if not isinstance(found, dict):
            raise self.wrong(f"`{name}` must be a table")
        return found

    def find(self, table: str, key: str, kind: type[T]) -> T | None:
        """The value, or None where there is no such key; a whole number serves as a float."""
        value = self.table(table).get(key)
        if kind is float and type(value) is int:
            value = float(value)
        if value is not None and type(value) is not kind:
            raise self.wrong(f"`{key}` in [{table}] must be {_NAMES[kind]}, got {value!r}")
        return value

    def need(self, table: str, key: str, kind: type[T]) -> T:
        value = self.find(table, key, kind)
        if value is None:
            raise self.wrong(f"`{key}` is missing in [{table}]")
        return value

    def texts(self, table: str, key: str) -> tuple[str, ...]:
        values = self.need(table, key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.wrong(f"`{key}` in [{table}] must be a list of texts")
        return tuple(values)

    def levers(self) -> State:
        return tuple(
            Applied(name=name, settings=self._settings(name, settings))
            for name, settings in self.table("levers").items()
        )

    def _settings(self, name: str, settings: object) -> Mapping[str, str | int | float | bool]:
        if not isinstance(settings, dict):
            raise self.wrong(f"`{name}` must be a table [levers.{name}]")
        for key, value in settings.items():
            if not isinstance(value, _SETTING_TYPES):
                raise self.wrong(f"`{key}` in [levers.{name}] must be a text or a number")
        return settings


_NAMES: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    list: "a list",
}


def _read_training(reader: _Reader) -> TrainingScope | None:
    if not reader.table("training"):
        return None
    numbers = reader.need("training", "processes", list)
    if not numbers or any(type(number) is not int or number < 0 for number in numbers):
        raise reader.wrong("`processes` in [training] must be a list of whole numbers from 0")
    return TrainingScope(
        number=reader.need("training", "number", int),
        words=reader.texts("training", "words"),
        numbers=tuple(numbers),
    )


def _read_sites(reader: _Reader, document: Mapping[str, Any]) -> EditSites | None:
    try:
        return read_site_tables(document)
    except ValueError as error:
        raise reader.wrong(str(error)) from None


def _read_proof(reader: _Reader) -> Proof:
    quality = reader.need("evidence", "quality", str)
    if quality not in Outcome.__members__:
        raise reader.wrong(f"`quality` in [evidence] must be PASS or another outcome: {quality!r}")
    seeds = reader.find("evidence", "seeds", str)
    if seeds is not None and seeds not in Outcome.__members__:
        raise reader.wrong(f"`seeds` in [evidence] must be PASS or another outcome: {seeds!r}")
    limit = reader.find("evidence", "limit_bytes", int)
    return Proof(
        study_id=reader.need("evidence", "study_id", str),
        speedup=_read_interval(reader, "", is_needed=limit is None and quality != "INCONCLUSIVE"),
        noise_floor=reader.find("evidence", "noise_floor", float),
        quality=Outcome[quality],
        level=reader.find("evidence", "level", str),
        baseline_step_s=reader.find("evidence", "baseline_step_s", float),
        tuned_step_s=reader.find("evidence", "tuned_step_s", float),
        device=reader.find("evidence", "device", str),
        torch_version=reader.find("evidence", "torch_version", str),
        loop_speedup=_read_interval(reader, "loop_"),
        limit_bytes=limit,
        peak_bytes=reader.find("evidence", "peak_bytes", int),
        seeds=None if seeds is None else Outcome[seeds],
        seeds_n=reader.find("evidence", "seeds_n", int),
        seeds_margin=reader.find("evidence", "seeds_margin", float),
    )


def _read_interval(reader: _Reader, prefix: str, *, is_needed: bool = False) -> Interval | None:
    """A speedup with its interval; old recipes have none of the loop, those of `fit` no other."""
    estimate = reader.find("evidence", f"{prefix}speedup", float)
    if estimate is None and not is_needed:
        return None
    return Interval(
        estimate=reader.need("evidence", f"{prefix}speedup", float),
        low=reader.need("evidence", f"{prefix}low", float),
        high=reader.need("evidence", f"{prefix}high", float),
        n=reader.need("evidence", f"{prefix}n", int),
    )
