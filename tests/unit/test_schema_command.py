"""`steptime schema`: what it prints is what the other commands write."""

import json

import pytest
from jsonschema import Draft202012Validator, ValidationError

from steptime.cli.main import COMMANDS, main
from steptime.core.schema import SCHEMA
from steptime.report.document.json_schema import DOCUMENTS


def schema_of(capsys, *verb):
    assert main(["schema", *verb, "--json"]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    return schema


def document_of(capsys, *words, code=0):
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("verb", "words", "code"),
    [
        (("levers",), ("levers", "autocast"), 0),
        (("list",), ("list",), 0),
        (("list",), ("list", "studies"), 0),
        (("plan", "batch"), ("plan", "batch", "global=64", "micro=8", "devices=4"), 0),
        (("verify", "power"), ("verify", "power", "--sd", "0.01", "--margin", "0.02"), 0),
        (("show", "run"), ("show", "nothing"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_the_schema_of_a_verb_validates_what_the_verb_prints(
    verb, words, code, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".steptime" / "runs").mkdir(parents=True)
    (tmp_path / ".steptime" / "studies").mkdir()

    Draft202012Validator(schema_of(capsys, *verb)).validate(document_of(capsys, *words, code=code))


def test_the_schema_refuses_what_the_verb_does_not_print(capsys):
    validator = Draft202012Validator(schema_of(capsys, "levers"))
    document = document_of(capsys, "levers", "autocast")

    del document["data"]["levers"][0]["preserves"]

    with pytest.raises(ValidationError, match="is not valid under any"):
        validator.validate(document)


def test_without_a_verb_each_document_has_one_line(capsys):
    assert main(["schema"]) == 0

    lines = capsys.readouterr().out.splitlines()
    for verb in DOCUMENTS:
        (line,) = [line for line in lines if line.startswith(f"{verb}  ")]
        assert len(line.split()) > len(verb.split()) + 1


def test_each_command_and_each_document_has_a_verb():
    assert {verb.split()[0] for verb in DOCUMENTS} == set(COMMANDS) - {"schema"}


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_every_key_of_a_document_is_told_with_its_type_and_meaning(verb, capsys):
    assert main(["schema", *verb.split()]) == 0

    out = capsys.readouterr().out
    lines = out.splitlines()
    for part in schema_of(capsys, *verb.split())["$defs"].values():
        for key in part.get("properties", {}):
            assert any(line.startswith(f"  - {key}: ") for line in lines), key
    assert any(line.startswith("  - status: error, ok, partial; ") for line in lines)
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("walk",), "There are: run, tune"),
        (("machin",), "Did you mean `machine`?"),
        (("data",), "data bench, data check, data convert"),
        ((), "Write: steptime schema run --json"),
    ],
)
def test_a_wrong_verb_is_wrong_usage_and_says_what_there_is(words, said, capsys):
    assert main(["schema", *words, "--json"]) == 2

    captured = capsys.readouterr()
    assert said in captured.err
    assert json.loads(captured.out)["errors"][0]["code"] == "usage"


def test_the_schema_can_go_to_a_file(capsys, tmp_path):
    file = tmp_path / "run.schema.json"

    assert main(["schema", "run", "--json", str(file)]) == 0

    assert capsys.readouterr().out == ""
    assert json.loads(file.read_text())["title"] == "Steptime: run"


def test_the_document_has_a_number_of_its_own_and_the_help_says_what_it_promises(capsys):
    document = document_of(capsys, "levers", "autocast")
    schema = schema_of(capsys, "levers")
    assert main(["schema", "--help"]) == 0

    assert (document["schema"], schema["properties"]["schema"]["const"], SCHEMA) == (2, 2, 1)
    promise = "no key goes away or changes its type, its unit or its meaning"
    assert promise in " ".join(capsys.readouterr().out.split())
