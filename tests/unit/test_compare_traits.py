"""What a run was made with, as traits that can be set side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compare_cases import make_compared, make_measured, make_record
from steptime.compare.alike import find_changes, kind_of
from steptime.compare.traits import read_arguments, script_of, traits_of
from steptime.compare.values import ComparedRun
from steptime.core.interval import Interval
from steptime.launch.values import Place
from steptime.measure.values.observations import LeverUse, LoaderUse, RecipeUse


def changes(a: ComparedRun, b: ComparedRun) -> dict[str, tuple[tuple[str, ...], ...]]:
    return {f"{c.what} {c.name}".strip(): (c.a, c.b) for c in find_changes([a], [b])}


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("/venv/bin/python3 /a/b/train.py", "train.py"),
        ("torchrun --nproc-per-node 2 train.py", "train.py"),
        ("python -m torch.distributed.run train.py", "train.py"),
        ("python -m torch.distributed.run -m pkg.train", "pkg.train"),
        ("python -m pkg.train", "pkg.train"),
        ("bash scripts/train.sh", "train.sh"),
        ("train-it --fast", "train-it"),
        ("", ""),
    ],
)
def test_the_script_of_a_command(argv: str, script: str) -> None:
    assert script_of(argv.split()) == script


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        ("python t.py --lr 0.1", {"word 0": "python", "word 1": "t.py", "--lr": "0.1"}),
        ("t --lr=0.1 -x", {"word 0": "t", "--lr": "0.1", "-x": ""}),
        ("t --lr -0.1", {"word 0": "t", "--lr": "-0.1"}),
        ("t --lr -.5", {"word 0": "t", "--lr": "-.5"}),
        ("t -o a -o b", {"word 0": "t", "-o": "a b"}),
        ("t --a --b c d", {"word 0": "t", "--a": "", "--b": "c", "word 1": "d"}),
        ("t - --", {"word 0": "t", "word 1": "-", "--": ""}),
    ],
)
def test_the_arguments_of_a_command(argv: str, arguments: dict[str, str]) -> None:
    assert dict(read_arguments(argv.split())) == arguments


def test_an_interpreter_elsewhere_is_no_change() -> None:
    a = make_compared(record={"argv": ("python", "train.py")})
    b = make_compared(record={"argv": ("/venv/bin/python", "train.py")})

    assert changes(a, b) == {}


def test_what_was_changed_is_found() -> None:
    a = make_compared()
    b = make_compared(
        record={
            "argv": ("python", "train.py", "--lr", "0.2", "--fast"),
            "environment": {"OMP_NUM_THREADS": "1"},
            "environment_names": ("HOME", "PATH", "DEBUG"),
            "git_revision": "ffff",
            "script_hash": "sha256:1",
        }
    )

    assert changes(a, b) == {
        "code train.py": (("sha256:" + "0" * 64,), ("sha256:1",)),
        "revision": (("3adf61e0c0ff",), ("ffff",)),
        "argument --lr": (("0.1",), ("0.2",)),
        "argument --fast": ((), ("",)),
        "environment OMP_NUM_THREADS": (("4",), ("1",)),
        "variable DEBUG": ((), ("set",)),
    }


def test_the_place_of_data_is_seen_from_the_working_folder() -> None:
    def lying(folder: str, filesystem: str) -> ComparedRun:
        places = (Place(path=f"{folder}/data", filesystem=filesystem),)
        return make_compared(record={"cwd": folder, "places": places})

    found = changes(lying("/a", "ext4"), lying("/b", "nfs4"))

    assert found == {"folder": (("/a",), ("/b",)), "place data": (("ext4",), ("nfs4",))}


def test_the_levers_of_a_recipe_are_traits() -> None:
    lever = LeverUse(name="autocast", settings={"dtype": "bf16"}, is_in_guest=True)
    use = RecipeUse(
        path="tuned.toml",
        study_id="s",
        speedup=Interval(estimate=1.2, low=1.1, high=1.3, n=9),
        levers=(lever, replace(lever, name="compile", error="it failed")),
    )
    found = traits_of(make_measured(recipe=use), make_record())

    levers = {t.name: t.value for t in found if t.what == "lever"}
    assert levers == {"autocast": '{"dtype": "bf16"}', "compile": "off, for it failed"}


def test_a_run_from_an_older_steptime_lacks_the_newer_traits() -> None:
    record = make_record(environment=None, script_files=(), script_hash=None)
    found = {trait.what for trait in traits_of(make_measured(), record)}

    assert not found & {"environment", "code", "place"}


def test_repeats_share_a_kind_whatever_their_folder_and_unknown_variables() -> None:
    a = make_compared()
    b = make_compared(
        number=1, record={"cwd": "/b", "environment_names": ("HOME", "PATH", "SSH_TTY")}
    )
    other = make_compared(number=2, record={"script_hash": "sha256:1"})

    def kind(run: ComparedRun, *, with_code: bool) -> object:
        return kind_of(run, with_code=with_code, with_host=True)

    assert kind(a, with_code=True) == kind(b, with_code=True)
    assert kind(a, with_code=True) != kind(other, with_code=True)
    assert kind(a, with_code=False) == kind(other, with_code=False)


def test_what_a_step_is_fed_with_and_the_libraries_are_traits() -> None:
    measured = make_measured()
    loader = LoaderUse(dataset="Rows", batch_size=8, num_workers=2, prefetch_factor=2)
    rank = replace(
        measured.ranks[0],
        device="cuda",
        device_name="a GPU",
        versions={"numpy": "2.0"},
        input_shapes=("8x3 float32",),
        loaders=(loader,),
    )
    found = {
        (t.what, t.name): t.value
        for t in traits_of(replace(measured, ranks=(rank,)), make_record())
    }

    assert found["device", ""] == "a GPU"
    assert found["version", "numpy"] == "2.0"
    assert found["input", "inputs"] == "8x3 float32"
    assert found["loader", "Rows batch_size"] == "8"
    assert found["loader", "Rows prefetch_factor"] == "2"


def test_a_run_without_steps_did_not_change_what_only_ranks_tell() -> None:
    found = changes(make_compared(), make_compared(None, ranks=(), num_ranks=0, number=1))

    assert found == {}


def test_another_script_is_told_once() -> None:
    def of(script: str, code: str) -> ComparedRun:
        return make_compared(
            record={
                "argv": ("python", script),
                "script_files": (script,),
                "script_hash": code,
                "places": (Place(path=f"/home/me/project/{script}", filesystem="ext4"),),
            }
        )

    assert changes(of("a.py", "sha256:1"), of("b.py", "sha256:2")) == {
        "script": (("a.py",), ("b.py",))
    }
