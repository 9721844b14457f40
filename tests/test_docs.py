"""What is written for people holds: links lead somewhere, generated pages are up to date."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import steptime
from steptime import errors
from steptime.cli.main import COMMANDS, build_parser
from steptime.record.buckets import COUNTS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)


def text_of(path):
    return path.read_text(encoding="utf-8")


def anchors_of(page):
    """The anchors that a code host makes from headings."""
    headings = re.findall(r"^#+ +(.+)$", CODE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    for target in LINK.findall(CODE.sub("", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue  # another site: a test does not reach out
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        leads_somewhere = file.exists() and ROOT in file.parents
        if leads_somewhere and anchor and file.suffix == ".md":
            leads_somewhere = anchor in anchors_of(file)
        if not leads_somewhere:
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert list(broken_links(page)) == []


def test_every_page_can_be_reached_from_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / name.split("#")[0]).resolve() for name in LINK.findall(text_of(index))
    }

    assert set((ROOT / "docs").rglob("*.md")) - {index} <= linked


def test_readme_is_short():
    assert len(text_of(ROOT / "README.md").splitlines()) < 150


def test_the_samples_are_what_the_code_prints_from_what_is_kept():
    generator = ROOT / "scripts" / "gen_samples.py"

    done = subprocess.run(
        [sys.executable, str(generator), "--check"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, f"{done.stderr}run `python scripts/gen_samples.py --write`"


SAMPLE = re.compile(r"(?ms)^<!-- sample: ([\w-]+) -->\n```\n.+?^```\n<!-- /sample -->$")


def test_the_first_pages_show_samples_and_each_mark_of_a_sample_is_whole():
    shown = {page.stem: SAMPLE.findall(text_of(page)) for page in PAGES}

    assert {"README", "first-run", "find-the-line", "tune", "compare-runs", "make-it-fit"} <= {
        name for name, samples in shown.items() if samples
    }
    assert [
        page.name
        for page in PAGES
        if not len(shown[page.stem])
        == text_of(page).count("<!-- sample: ")
        == text_of(page).count("<!-- /sample -->")
    ] == []


def test_contributing_fits_one_screen():
    assert len(text_of(ROOT / "CONTRIBUTING.md").splitlines()) <= 50


BANNED = re.compile(
    r"\banew\b|for want of|goes? on no more|told apart|\bsave for\b|\bbut for\b|\bspells?\b"
    r"|\bstanding\b|\b(?:a|another|each|every|two|three|the) looks?\b|\blooks of\b"
    r"|\bdear\b|\bnil\b|\b(?:is|are|was|were) (?:told|said)\b|\blooked into\b"
    r"|\bwhat (?:was|were) left\b|\bnobody\b|\bmeanwhile\b|(?<!`)\bwarmup\b(?!`)"
    r"|(?:\d|[}](?= an? (?:step|parameter|second|hour)\b)"
    r"|\b(?:[mµn]?s|[kMGT]?i?B|bytes?|[kMGTP]?FLOPS?|tokens?|samples?|images?|batches|CPU|faults"
    r"|\d (?:calls|times|new ones))) an? "
    r"(?:step|parameter|token|sample|image|row|batch|second|hour|epoch)\b(?! would\b)",
    re.IGNORECASE,
)
SHOWN = ("app", "cli", "compare", "core", "diagnose", "levers", "machine", "methods", "notebook")
SHOWN += ("patch", "plan", "report", "testing", "values")
"""Folders whose strings and public docstrings people read: output, help, the schema, the pages."""


def words_of(path):
    """Yield each line of a module's strings; of an f-string with {} for what is put in."""
    parts, private = set(), set()
    nodes = list(ast.walk(ast.parse(text_of(path))))
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.startswith("_"):
            private.add(id(getattr(node.body[0], "value", None)))
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            texts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield from "".join(texts).splitlines()
        elif isinstance(node, ast.Constant) and id(node) not in parts | private:
            yield from [line for line in str(node.value).splitlines() if " " in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_in_plain_english(page):
    if page.name == "words.md":
        return  # the list of what is banned

    text = text_of(page)
    lines = (text if page.name == "cli.md" else CODE.sub("", text)).splitlines()
    assert [line for line in lines if BANNED.search(line)] == []


@pytest.mark.parametrize("folder", SHOWN)
def test_output_help_and_docstrings_are_in_plain_english(folder):
    modules = [
        path
        for path in (ROOT / "src" / "steptime").rglob("*.py")
        if folder
        in path.relative_to(ROOT / "src" / "steptime").parts[: 1 if folder != "values" else -1]
    ]

    found = [(path.name, line) for path in modules for line in words_of(path)]
    assert found
    assert [(name, line) for name, line in found if BANNED.search(line)] == []


@pytest.mark.parametrize(
    ("line", "is_banned"),
    [
        ("12 ms a step", True),
        ("{} a step, about {} on average", True),
        ("16 bytes a parameter", True),
        ("1 MiB a second", True),
        ("a step takes 3 ms", False),
        ("7.5 % of a step", False),
        ("{} a step would take at least {}", False),
        ("12 ms per step", False),
        ("Nothing is said", True),
    ],
)
def test_a_number_is_per_step_and_a_step_is_a_step(line, is_banned):
    assert bool(BANNED.search(line)) is is_banned


def commands_on(page):
    """The words of each line in a block of code that starts a command of ours."""
    for block in CODE.finditer(text_of(page)):
        for line in block[0].replace("\\\n", " ").splitlines():
            found = re.search(rf"(?:^|[$;(&] *)steptime ((?:{'|'.join(COMMANDS)})\b.*)", line)
            if found:
                text = re.split(r" [>|] | \d>| *&& | \|\| |;|\)$", found[1])[0]
                words = shlex.split(text, comments=True)
                yield words[: words.index("--")] if "--" in words else words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_on_the_pages_are_understood(page):
    parser = build_parser()

    for words in commands_on(page):
        parser.parse_args(words)


NEEDS = {
    ("data", "check"): "data",
    ("data", "convert"): "data",
    ("patch",): "patch",
    ("sweep",): "sweep",
    ("verify", "power"): "verify",
    ("verify", "training"): "verify",
}
NEEDS_NONE = {"README.md", "cli.md"}  # it links; it has all


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_the_extras_that_its_commands_need(page):
    text, used = text_of(page), [tuple(words) for words in commands_on(page)]
    needed = {
        extra for words in used for verb, extra in NEEDS.items() if words[: len(verb)] == verb
    }

    assert [
        extra
        for extra in needed
        if page.name not in NEEDS_NONE and f"steptime[{extra}]" not in text
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_installs_a_release_as_long_as_there_is_none(page):
    if "There is no release yet" in text_of(ROOT / "README.md"):
        assert re.findall(r"pipx? install (?:-U )?steptime\b", text_of(page)) == []


def test_the_gains_on_the_pages_are_those_of_the_results():
    results = json.loads(text_of(ROOT / "benchmarks" / "results" / "compare_arms.json"))
    measured = [
        {
            "{median:.2f} [{low:.2f}, {high:.2f}]".format(**one["step_s"])
            for one in script["ratios"].values()
        }
        for script in results.values()
    ]
    row = re.compile(r"^\| .+? \|((?: \d+\.\d\d \[.+?\] \|){3})$", re.MULTILINE)
    page = text_of(ROOT / "docs" / "explanation" / "how-we-tune.md").partition("### Scripts")[0]
    rows = [set(cells.strip(" |").split(" | ")) for cells in row.findall(page)]

    assert len(rows) == 16
    assert [cells for cells in rows if not any(cells <= script for script in measured)] == []


def test_the_gains_of_the_unseen_scripts_are_those_of_the_results():
    words = [sys.executable, str(ROOT / "benchmarks" / "tune" / "corpus.py"), "--table"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    table = said.partition("\nunseen")[2]
    cells = [
        re.findall(r"\d+\.\d\d \[\d.+?\]", line)
        for line in table.splitlines()
        if re.match(r"\d\d ", line)
    ]
    readme = text_of(ROOT / "README.md")
    page = text_of(ROOT / "docs" / "explanation" / "how-we-tune.md")

    assert [len(found) for found in cells].count(4) == 4  # with a recipe; else the expert's alone
    assert [cell for found in cells for cell in found if cell not in page] == []
    assert [cell for found in cells for cell in (found[1:3] or found) if cell not in readme] == []
    assert f"Recipe over hand is {table.split()[-1]} in the geometric mean" in readme
    assert f"geometric mean of tuned over expert is {table.split()[-1]}" in page


def test_the_page_on_python_names_each_function():
    functions = {name for name in steptime.__all__ if name.islower() and name[0] != "_"}
    page = text_of(ROOT / "docs" / "how-to" / "from-python.md")

    assert functions == set(re.findall(r"^\| `steptime\.(\w+)\(", page, re.MULTILINE))


def test_there_are_commands_on_the_pages():
    assert len([words for page in PAGES for words in commands_on(page)]) > 40


def test_functions_on_the_pages_are_in_the_package():
    blocks = [block[0] for page in PAGES for block in CODE.finditer(text_of(page))]
    names = {name for block in blocks for name in re.findall(r"\bsteptime\.(\w+)\(", block)}

    assert {"observe", "load", "compare", "tune", "count"} <= names <= set(steptime.__all__)


def test_changelog_has_a_place_for_what_is_new():
    assert "## Unreleased" in text_of(ROOT / "CHANGELOG.md")


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="argparse lays help out a little differently in each Python; the page is made with 3.11",
)
def test_the_command_line_reference_is_what_the_commands_say():
    generator = ROOT / "scripts" / "gen_cli_reference.py"

    done = subprocess.run(
        [sys.executable, str(generator), "--stdout"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    page = text_of(ROOT / "docs" / "reference" / "cli.md")
    assert done.stdout == page, "run `python scripts/gen_cli_reference.py`"


def test_the_lever_reference_is_what_the_levers_declare():
    generator = ROOT / "scripts" / "gen_lever_reference.py"

    done = subprocess.run(
        [sys.executable, str(generator), "--stdout"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    page = text_of(ROOT / "docs" / "reference" / "levers.md")
    assert done.stdout == page, "run `python scripts/gen_lever_reference.py`"


def test_the_table_of_findings_is_what_the_ailments_say():
    generator = ROOT / "scripts" / "gen_ailment_reference.py"

    done = subprocess.run(
        [sys.executable, str(generator), "--stdout"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    page = text_of(ROOT / "docs" / "reference" / "findings.md")
    assert done.stdout == page, "run `python scripts/gen_ailment_reference.py`"


def test_the_check_reference_is_what_the_checks_say():
    generator = ROOT / "scripts" / "gen_check_reference.py"

    done = subprocess.run(
        [sys.executable, str(generator), "--stdout"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    page = text_of(ROOT / "docs" / "reference" / "checks.md")
    assert done.stdout == page, "run `python scripts/gen_check_reference.py`"


def test_the_json_reference_names_every_error_code():
    words = set(
        re.findall(r"[a-z0-9_]+", text_of(ROOT / "docs" / "how-to" / "use-in-a-program.md"))
    )
    ours = {"too_noisy", "interrupted", "time_limit", "gate_not_met", "not_comparable"}
    ours |= {"script_failed", "script_killed", "run_unfinished", "not_observed", "not_measured"}
    ours |= {"trial_failed", "trial_timed_out", "trial_out_of_memory"}

    assert ours | {error.code for error in all_errors(errors.SteptimeError)} <= words


def all_errors(root):
    return [root, *(error for sub in root.__subclasses__() for error in all_errors(sub))]


def test_the_architecture_picture_is_what_the_imports_say():
    generator = ROOT / "scripts" / "gen_architecture_picture.py"

    done = subprocess.run(
        [sys.executable, str(generator), "--stdout"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    picture = text_of(ROOT / "docs" / "pictures" / "architecture.svg")
    assert done.stdout == picture, "run `python scripts/gen_architecture_picture.py`"


def test_the_moving_picture_is_small_begins_with_a_command_and_names_no_folder_of_ours():
    picture = text_of(ROOT / "docs" / "pictures" / "terminal.svg")

    assert len(picture) < 500_000
    first = next(iter(ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}use"))).get(
        "href"
    )
    assert f'id="{first[1:]}"' in picture
    assert "python train.py" in picture
    assert not re.search(r"/(root|home|work)/", picture)


def test_the_page_of_the_run_folder_names_each_count_of_the_guest():
    page = text_of(ROOT / "docs" / "internals" / "run-folder.md")

    assert [name for name in COUNTS if f"`{name}`" not in page] == []
