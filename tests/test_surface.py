"""What a user can reach: names, commands, help, and the files of the package."""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import steptime
from steptime.errors import MissingExtraError, install_command

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"

try:
    from steptime.cli.main import COMMANDS
except ImportError as error:
    COMMANDS = ()
    NO_COMMANDS = f"the command line cannot be imported: {error}"
else:
    NO_COMMANDS = None

needs_commands = pytest.mark.skipif(NO_COMMANDS is not None, reason=str(NO_COMMANDS))


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, **options
    )


def help_of(*words):
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    return python("-m", "steptime", *words, "--help", env=environment)


def public_names(module):
    """What a module defines or takes from within the package, without its submodules."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "steptime").startswith("steptime")
    }


def test_all_names_what_can_be_imported():
    promised = set(steptime.__all__)

    assert all(hasattr(steptime, name) for name in promised)
    assert public_names(steptime) <= promised
    assert len(promised) == len(steptime.__all__)


def test_each_package_that_promises_names_keeps_them():
    for init in (ROOT / "src" / "steptime").rglob("__init__.py"):
        dotted = ".".join(init.parent.relative_to(ROOT / "src").parts)
        if ".guest" in dotted or ".inject" in dotted:
            continue  # loaded by file, under another name
        try:
            module = importlib.import_module(dotted)
            assert all(hasattr(module, name) for name in getattr(module, "__all__", ()))
        except (MissingExtraError, ModuleNotFoundError):
            # Libraries of their own, for whoever has what they are made of.
            if find_spec("torch") is not None and find_spec("numpy") is not None:
                raise


def test_import_is_light():
    heavy = ("torch", "numpy", "rich", "msgspec", "psutil", "asyncio", "subprocess")
    code = f"import sys, steptime; print([name for name in {heavy} if name in sys.modules])"

    done = python("-c", code)

    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@needs_commands
def test_help_imports_no_wing_and_nothing_heavy():
    code = (
        "import sys\n"
        "from steptime.cli.main import build_parser\n"
        "build_parser().format_help()\n"
        "print(sorted({n.split('.')[1] for n in sys.modules if n.startswith('steptime.')}))\n"
        "print([n for n in ('torch', 'numpy', 'rich', 'msgspec', 'psutil') if n in sys.modules])"
    )

    done = python("-c", code)

    assert done.stdout.splitlines() == ["['cli', 'errors']", "[]"], done.stdout + done.stderr


@needs_commands
@pytest.mark.parametrize("words", [(), *((command,) for command in COMMANDS)], ids=str)
def test_help_has_examples_and_fits_two_screens(words):
    done = help_of(*words)

    assert done.returncode == 0, done.stderr
    assert "examples:" in done.stdout.lower()
    assert len(done.stdout.splitlines()) <= 50
    assert max(map(len, done.stdout.splitlines())) <= 80


@needs_commands
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_in_the_reference(command):
    pages = (page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))

    has_section = any(f"\n## `steptime {command}`" in page for page in pages)
    assert has_section or (REFERENCE / f"{command}.md").is_file()


def test_the_wheel_holds_every_file_of_the_package_and_builds_without_git(tmp_path):
    pytest.importorskip("hatchling", reason="the build tool is not installed")
    tree = tmp_path / "archive"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))

    done = python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "out"), cwd=tree)

    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name.startswith("steptime-0.1.0.dev0-")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("steptime/")}
    files = (path for path in (tree / "src").rglob("*") if path.is_file())
    assert packed == {path.relative_to(tree / "src").as_posix() for path in files}
    assert "steptime/py.typed" in packed


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        ("pyvenv.cfg", "home = /usr/bin\nversion = 3.11.7\n", "pip install"),
        ("pyvenv.cfg", "home = /usr/bin\nuv = 0.13.9\n", "uv pip install --python {python}"),
        ("pipx_metadata.json", "{}", "pipx runpip steptime install"),
        ("bin", "", "pip install"),
    ],
)
def test_a_package_is_installed_with_the_tool_that_made_the_environment(
    name, text, tool, tmp_path, monkeypatch
):
    home = tmp_path / "steptime"
    home.mkdir()
    (home / name).write_text(text)
    monkeypatch.setattr(sys, "prefix", str(home))
    command = f"{tool.format(python=sys.executable)} 'steptime[data]'"

    assert install_command("steptime[data]") == command
    error = MissingExtraError("no numpy", needs="steptime[data]", hint=", or take another")
    assert error.hint == f"Install it: {command}, or take another"


def test_each_extra_that_is_named_is_one_and_all_brings_the_others():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = dict(re.findall(r"^([\w-]+) = \[(.*?)\]$", section, re.MULTILINE | re.DOTALL))
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {
        extra
        for page in pages
        for found in re.findall(r"steptime\[(\w[\w,-]*)\]", page.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }

    assert {"data", "sweep"} <= named <= set(extras)
    (brought,) = re.findall(r"steptime\[([\w,-]+)\]", extras["all"])
    assert set(brought.split(",")) == set(extras) - {"all", "dev", "ray", "test"}
