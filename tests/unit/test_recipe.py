"""The recipe file: what is written is read again, and what is wrong is said in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptime.core.codec import from_json, to_json
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.errors import RecipeError
from steptime.measure.values.observations import Difference
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_differences import find_differences
from steptime.tune.recipe.recipe_file import (
    check_output,
    make_recipe,
    parse_recipe,
    read_recipe,
    render_recipe,
    storable,
    write_recipe,
)
from steptime.tune.values.recipe_values import Recipe, Script
from steptime.tune.values.study_values import Applied, StudyOutcome
from study_cases import faster, nothing_helps

SCRIPT = Script(command=("python", "train.py"), files=("train.py",), hash="sha256:ab")
MACHINE = MachineIdentity(cpu="Xeon", num_cores=2, memory_bytes=8 << 30)


def make(**changes: object) -> Recipe:
    recipe = make_recipe(faster(), script=SCRIPT, machine=MACHINE)
    return replace(recipe, **changes)  # type: ignore[arg-type]


def text_of(recipe: Recipe | None = None) -> str:
    return render_recipe(recipe or make(), name="tuned.toml")


# -- there and back


def test_a_recipe_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_recipe(tmp_path / "tuned.toml", make())
    assert read_recipe(tmp_path / "tuned.toml") == make()


def test_a_recipe_survives_json() -> None:
    assert from_json(Recipe, to_json(make())) == make()


TEXTS = st.text(max_size=12)
NAMES = TEXTS.filter(lambda name: "_" not in name)  # a unit behind it would bound its number
SETTINGS = st.dictionaries(
    NAMES,
    TEXTS | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(-1e100, 1e100),
    max_size=3,
)


@given(words=st.lists(TEXTS, max_size=4), levers=st.dictionaries(TEXTS, SETTINGS, max_size=3))
@settings(max_examples=60)
def test_any_word_and_setting_survives(words: list[str], levers: dict[str, dict]) -> None:
    state = tuple(Applied(name=name, settings=values) for name, values in levers.items())
    recipe = make(script=Script(command=tuple(map(storable, words))), levers=state)
    if state:
        assert parse_recipe(text_of(recipe), where="x") == recipe


def test_the_order_of_the_levers_is_kept() -> None:
    state = tuple(Applied(name=name, settings={}) for name in ("z", "a", "m"))
    assert parse_recipe(text_of(make(levers=state)), where="x").levers == state


def test_bytes_of_an_odd_file_name_are_written_out() -> None:
    recipe = make(script=Script(command=("python", "tr\udce4n.py")))
    assert parse_recipe(text_of(recipe), where="x").script.command[1] == "tr\\udce4n.py"


def test_what_was_not_observed_is_not_in_the_file() -> None:
    recipe = make(machine=MachineIdentity(cpu="Xeon"))
    assert "num_cores" not in text_of(recipe)
    assert parse_recipe(text_of(recipe), where="x") == recipe


def test_a_person_reads_what_was_proven() -> None:
    text = text_of()
    assert '[levers.autocast]\ndtype = "bf16"\n' in text
    assert "# Train with it: steptime run --recipe tuned.toml -- COMMAND" in text
    assert "speedup = 1.52\nlow = 1.47\nhigh = 1.58\nn = 8\n" in text


def test_a_study_that_found_nothing_has_no_recipe() -> None:
    assert nothing_helps().outcome is StudyOutcome.NOTHING_HELPS
    with pytest.raises(ValueError, match="a study with a recipe is needed"):
        make_recipe(nothing_helps(), script=SCRIPT, machine=MACHINE)


# -- what is wrong


def damaged(old: str, new: str) -> str:
    text = text_of()
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[steptime", "x is damaged: "),
        ("", "x is not a recipe of Steptime"),
        ("[tool]\nname = 1\n", "x is not a recipe of Steptime"),
        ("steptime = 1\n[levers]\n", "x is not a recipe of Steptime"),
        (damaged("schema = 1", "schema = 2"), "has schema 2; this Steptime reads schema 1"),
        (damaged("schema = 1\n", ""), r"`schema` is missing in \[steptime\]"),
        (damaged("n = 8\n", ""), r"`n` is missing in \[evidence\]"),
        (damaged("n = 8", "n = '8'"), r"`n` in \[evidence\] must be a whole number, got '8'"),
        (damaged("speedup = 1.52", "speedup = true"), "must be a number, got True"),
        (damaged('quality = "PASS"', 'quality = "FINE"'), "'FINE'"),
        (damaged('dtype = "bf16"', "dtype = [1]"), r"`dtype` in \[levers.autocast\]"),
        (damaged("[levers.autocast]", "[levers]\nautocast = 3\n[z]"), r"a table \[levers.autocast"),
        (damaged('["python"', "[1"), "`command` in .* must be a list of texts"),
        (damaged("[machine]", "[[machine]]"), "`machine` must be a table"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says) as caught:
        parse_recipe(text, where="x")
    assert caught.value.hint is not None
    assert "steptime tune" in caught.value.hint


def test_a_whole_number_serves_where_any_number_does() -> None:
    recipe = parse_recipe(damaged("speedup = 1.52", "speedup = 2"), where="x")
    assert recipe.proof.speedup.estimate == 2.0


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"there is no recipe .*tuned\.toml"):
        read_recipe(tmp_path / "tuned.toml")


@pytest.mark.parametrize("make_it", [lambda p: p.write_bytes(b"\xff\x00"), lambda p: p.mkdir()])
def test_what_is_no_text_is_no_recipe(make_it: object, tmp_path: Path) -> None:
    make_it(tmp_path / "x.toml")  # type: ignore[operator]
    with pytest.raises(RecipeError):
        read_recipe(tmp_path / "x.toml")


# -- where it is put


def test_a_file_that_is_no_recipe_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text("my = 'notes'\n")
    with pytest.raises(RecipeError, match="is not a recipe of Steptime; it stays as it is") as no:
        write_recipe(path, make())
    assert "--output FILE" in str(no.value.hint)
    assert path.read_text() == "my = 'notes'\n"


def test_an_earlier_recipe_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    write_recipe(path, make())
    write_recipe(path, make(version="9"))
    assert read_recipe(path).version == "9"


def test_a_folder_or_a_binary_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for name in (".", "binary"):
        with pytest.raises(RecipeError):
            check_output(tmp_path / name)


def test_a_recipe_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be written") as caught:
        write_recipe(tmp_path / "no" / "tuned.toml", make())
    assert "--output" in str(caught.value.hint)


# -- what differs


def test_the_same_script_on_the_same_machine_differs_in_nothing() -> None:
    assert find_differences(make(), script=SCRIPT, machine=MACHINE) == ()


def test_each_thing_that_differs_is_named_with_both_values() -> None:
    other = Script(command=("python", "train.py", "--lr", "1"), files=("train.py",), hash="other")
    machine = replace(MACHINE, cpu="EPYC", num_cores=64)
    found = find_differences(make(), script=other, machine=machine)
    assert [difference.what for difference in found] == ["command", "script", "cpu", "num_cores"]
    assert found[3] == Difference(what="num_cores", proven=2, here=64)


def test_what_was_not_observed_is_no_difference() -> None:
    assert find_differences(make(), script=SCRIPT, machine=MachineIdentity()) == ()


def test_a_little_less_memory_is_the_same_machine() -> None:
    for memory_bytes, count in (((8 << 30) - 4096, 0), (4 << 30, 1)):
        machine = replace(MACHINE, memory_bytes=memory_bytes)
        assert len(find_differences(make(), script=SCRIPT, machine=machine)) == count


# -- the files of a command


def test_the_hash_changes_with_the_script_and_not_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    first = describe_script(("python", "train.py"), folder=tmp_path)
    other = describe_script(("python", "./train.py", "--lr", "3"), folder=tmp_path)
    (tmp_path / "train.py").write_text("x = 2\n")
    changed = describe_script(("python", "train.py"), folder=tmp_path)
    assert first.files == ("train.py",)
    assert first.hash == other.hash != changed.hash


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (("python", "-m", "pkg.train"), ("pkg/train.py",)),
        (("python", "-m", "pkg"), ("pkg/__main__.py",)),
        (("./run.sh",), ("./run.sh",)),
        (("python", "pkg/train.py", "--config=a.yaml"), ("pkg/train.py", "a.yaml")),
        (("python", "pkg/train.py", "model.bin"), ("pkg/train.py",)),
        (("true", "\0"), ()),
    ],
)
def test_the_files_of_a_command_are_its_texts(
    command: tuple[str, ...], files: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "pkg").mkdir()
    for name in ("pkg/train.py", "pkg/__main__.py", "run.sh", "a.yaml"):
        (tmp_path / name).write_text(name)
    (tmp_path / "model.bin").write_bytes(b"\0\1")
    script = describe_script(command, folder=tmp_path)
    assert script.files == files
    assert (script.hash is None) == (files == ())


def test_this_machine_is_described() -> None:
    machine = describe_machine()
    assert machine.num_cores
    assert machine.hostname_hash is None  # a recipe is handed on
