"""`steptime levers`, and the levers that other packages offer."""

import json
import re
import sys
from pathlib import Path

import pytest

from steptime import levers
from steptime.cli.main import main
from steptime.levers.base import LeverEvidence, Moment
from steptime.levers.examples import WORLDS
from steptime.report.blocks.study.lever_report import describe_gain

OUTSIDE = """
from steptime.levers.base import Lever, Moment, Preserves

def applies(facts):
    return None

LEVER = Lever(
    name="outside", title="Do nothing.", relieves=("HOST_BOUND",), phases=("other",),
    preserves=Preserves.EXACT, when="Always.", applies=applies, space=lambda facts: ({},),
    moment=Moment.LIVE, apply=lambda settings, session: lambda: None,
    edit=lambda settings: "pass", costs="Nothing.", source="none",
)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package whose module holds a text, with an entry point that names it."""

    def install(text, *, module="outside_lever", value=None, name="outside"):
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {module}\nVersion: 1.0\n")
        points = f"[steptime.levers]\n{name} = {value or module}\n"
        (info / "entry_points.txt").write_text(points)
        monkeypatch.delitem(sys.modules, module, raising=False)

    monkeypatch.syspath_prepend(tmp_path)
    return install


# -- the command


def test_all_levers_are_listed_with_what_they_do(capsys):
    assert main(["levers"]) == 0

    out = capsys.readouterr().out
    for name in levers.NAMES:
        lever = levers.load(name)
        (line,) = [line for line in out.splitlines() if line.startswith(name)]
        assert lever.title in line
        assert lever.preserves.value.lower() in line
        assert lever.moment.value.lower() in line


@pytest.mark.parametrize("name", levers.NAMES)
def test_one_lever_is_explained(name, capsys):
    lever = levers.load(name)

    assert main(["levers", name]) == 0

    out = capsys.readouterr().out
    words = " ".join(out.split())
    for text in (lever.title, lever.when, lever.costs, lever.source, lever.preserves.value):
        assert " ".join(text.split()) in words
    assert out.splitlines()[-1] == f"next       steptime tune --levers {name} -- python train.py"
    assert max(map(len, out.splitlines()[:-4])) <= 200


def test_the_explanation_has_settings_and_the_edit_as_it_is_to_be_pasted(capsys):
    main(["levers", "autocast"])

    out = capsys.readouterr().out
    assert "dtype = bf16 | fp16" in out
    assert "  with torch.autocast(inputs.device.type, dtype=torch.bfloat16):\n" in out
    assert "      outputs = model(inputs)\n" in out


def test_what_a_lever_gave_is_told_with_its_range_and_its_source(capsys):
    main(["levers", "fused_optimizer"])

    out = capsys.readouterr().out
    lines = iter(out.splitlines())
    line = next(line for line in lines if "bigram" in line)
    gain, number, training = re.split(r"  +", line, maxsplit=2)
    assert gain == "2.52x (1.84-4.16)"
    assert training == "ng-video-lecture, bigram, two cores"
    assert next(lines).startswith("    All levers of")
    assert f"  {number}. benchmarks/results/compare_arms.json\n" in out


def test_a_lever_without_a_figure_says_that_it_is_untested(capsys):
    main(["levers", "quantized_training"])

    assert "untested: there are no figures of it yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("speedup", "low", "high", "words"),
    [
        (1.5, None, None, "1.50x"),
        (1.5, 1.2, 1.9, "1.50x (1.20-1.90)"),
        (None, 1.01, 1.1, "1.01-1.10x"),
        (None, None, None, "not in figures"),
    ],
)
def test_a_gain_in_words(speedup, low, high, words):
    row = LeverEvidence(
        training="A", speedup=speedup, low=low, high=high, remark="", source="docs/"
    )

    assert describe_gain(row) == words


def test_a_switch_has_no_settings(capsys):
    main(["levers", "channels_last"])

    assert "none: it is on or off" in capsys.readouterr().out


def test_a_lever_that_is_not_there_is_refused_with_the_nearest(capsys):
    assert main(["levers", "autocost"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no lever `autocost`" in err
    assert "Did you mean `autocast`?" in err


@pytest.mark.parametrize("words", [[], ["autocast"]])
def test_the_document_has_what_levers_declare(words, capsys):
    assert main(["levers", *words, "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    found = {one["name"]: one for one in document["data"]["levers"]}
    assert document["command"] == "levers"
    assert set(found) == set(words or levers.NAMES)
    assert found["autocast"]["settings"] == {"dtype": ["bf16", "fp16"]}
    assert found["autocast"]["preserves"] == "NUMERIC"


def test_a_document_of_an_error_is_written_too(capsys):
    assert main(["levers", "nothing", "--json"]) == 2

    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["errors"][0]["code"]) == ("error", "usage")


# -- levers of other packages


def test_a_lever_of_another_package_is_listed_and_loaded_by_its_name(package, capsys):
    package(OUTSIDE)

    assert main(["levers", "outside"]) == 0

    assert "Do nothing." in capsys.readouterr().out
    assert levers.load("outside").moment is Moment.LIVE
    assert Path(levers.file_of(levers.load("outside"))).name == "outside_lever.py"
    assert [lever.name for lever in levers.load_all()] == [*levers.NAMES, "outside"]


def test_an_entry_point_may_name_the_value_itself(package):
    package(OUTSIDE, value="outside_lever:LEVER")

    assert levers.load("outside").name == "outside"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise RuntimeError('no such device')", "no such device"),
        ("import no_such_module", "no_such_module"),
        ("def f(:", "SyntaxError"),
        ("LEVER = 1", "must be a Lever"),
        (OUTSIDE.replace('"outside"', '"autocast"'), "that name is taken"),
    ],
)
def test_a_broken_one_is_named_and_the_others_are_there(package, text, says, capsys):
    package(text)

    assert main(["levers"]) == 0

    out, err = capsys.readouterr()
    assert "outside" in err
    assert says in err
    assert all(name in out for name in levers.NAMES)
    assert "outside" not in out


def test_a_lever_without_a_world_in_which_it_applies_can_be_explained(package, capsys):
    package(OUTSIDE.replace("return None", 'return "Never."'))

    assert main(["levers", "outside"]) == 0
    assert "none: it is on or off" in capsys.readouterr().out


def test_what_is_unknown_is_refused_by_the_library(package):
    with pytest.raises(ValueError, match=r"must be one of .*autocast.* got 'zzz'"):
        levers.load("zzz")


def test_each_lever_of_ours_applies_in_one_of_the_example_worlds():
    for name in levers.NAMES:
        assert any(levers.load(name).applies(facts) is None for facts in WORLDS), name
