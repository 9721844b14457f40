"""How many small mistakes in the code that judges the fast check would notice.

    python benchmarks/verify/mutants.py [--mutants 60] [--seed 12] [--rooms NAME ...] [--units-only]

A mutant is the package with one random change in one of its rooms: a comparison turned round, a
constant moved, a condition negated, `and` for `or`, plus for minus, a statement left out, nothing
returned. Each goes, in a copy of the tree, through what the fast check does with it, up to the
first failure: the type checker; the unit and contract tests that execute the changed lines (those
whose imports reach the file, where the lines run at import); the end-to-end tests of the fast check
that belong to its room. A mutant is killed if one of them fails or does not end in time. Some
survivors change nothing that anybody could notice, which is for a reader to judge. The share that
was killed, with its 95 % interval, and every mutant go to benchmarks/results/mutants.json. All
checks must pass without a change, which is tried first.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import math
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coverage import CoverageData

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "mutants.json"
ROOMS = ("diagnose", "verify", "tune", "record", "measure")
END_TO_END = {
    "diagnose": ("test_ailments.py", "test_specimens.py"),
    "measure": ("test_specimens.py", "test_rare_loops.py", "test_series.py", "test_profile.py"),
    "record": ("test_specimens.py", "test_rare_loops.py", "test_trials.py", "test_bad_days.py"),
    "tune": ("test_worlds.py", "test_recipe_runs.py", "test_tune_command.py", "test_studies.py"),
    "verify": ("test_quality.py",),
}
"""What of the end-to-end tests belongs to a room."""
UNITS = ("tests/unit", "tests/contract")
IN_THE_FAST_CHECK = ("--fast", "-m", "not serial")
UNIT_LIMIT_S, CORE_LIMIT_S = 400.0, 900.0  # a busy machine takes its time
TYPES_LIMIT_S = 400.0
ALL_LIMIT_S = 1800.0
NEAR = 2  # imports

FLIPPED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SWAPPED: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something can be changed: the n-th node of a file as `ast.walk` goes, and how."""

    room: str
    file: str
    node: int
    kind: str
    line: int
    end_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change that was tried, and what noticed it; `killed_by` is None for a survivor."""

    place: Place
    before: str
    after: str
    killed_by: str | None
    stage: str
    num_tests: int
    took_s: float


# -- changes


def places_in(room: str, file: Path, package: Path) -> Iterator[Place]:
    """Every place of a file where a change can be made."""
    tree = ast.parse(file.read_text())
    skipped = _skipped(tree)
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for kind in _kinds(node):
            yield Place(
                room=room,
                file=str(file.relative_to(package)),
                node=number,
                kind=kind,
                line=node.lineno,  # type: ignore[attr-defined]
                end_line=_part(node).end_lineno,  # type: ignore[attr-defined]
            )


def _skipped(tree: ast.Module) -> set[int]:
    """Nodes that are for readers and type checkers: annotations, docstrings, `__all__`."""
    return {
        id(inner)
        for node in ast.walk(tree)
        for part in _parts_to_skip(node)
        if part is not None
        for inner in ast.walk(part)
    }


def _parts_to_skip(node: ast.AST) -> list[ast.expr | ast.stmt | None]:
    match node:
        case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=annotation):
            return [annotation]
        case ast.FunctionDef():
            return [node.returns, *node.decorator_list]
        case ast.ClassDef():
            return [*node.decorator_list]
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr():
            return [node]  # what lies within an f-string has no position of its own
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return [node]
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return [node]
    return []


def _kinds(node: ast.AST) -> list[str]:
    match node:
        case ast.Compare(ops=[_]):
            return ["comparison"]
        case ast.Constant(value=bool() | int() | float()):
            return ["constant"]
        case ast.BoolOp():
            return ["and or"]
        case ast.BinOp() if type(node.op) in SWAPPED:
            return ["arithmetic"]
        case ast.UnaryOp(op=ast.Not()):
            return ["negation"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["condition"]
        case ast.AugAssign() | ast.Raise() | ast.Expr(value=ast.Call()):
            return ["left out"]
        case ast.Return(value=ast.Constant(value=None) | None):
            return []
        case ast.Return():
            return ["returned"]
    return []


def change(source: str, place: Place, rng: random.Random) -> tuple[str, str, str]:
    """The changed source, and the changed statement or expression before and after."""
    part = _part(list(ast.walk(ast.parse(source)))[place.node])
    new = ast.unparse(_changed(copy.deepcopy(part), place.kind, rng))
    if isinstance(part, ast.expr):
        new = f"({new})"
    lines = source.encode().splitlines(keepends=True)
    start, end = (
        sum(map(len, lines[: line - 1])) + column
        for line, column in (
            (part.lineno, part.col_offset),
            (part.end_lineno, part.end_col_offset),
        )
    )
    whole = source.encode()
    text = (whole[:start] + new.encode() + whole[end:]).decode()
    return text, ast.unparse(part).splitlines()[0][:160], new.splitlines()[0][:160]


def _part(node: ast.AST) -> Any:
    """What of a node is written in another way: of an `if`, its condition."""
    return node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node


def _changed(node: Any, kind: str, rng: random.Random) -> ast.AST:
    if kind == "comparison":
        node.ops = [FLIPPED[type(node.ops[0])]()]
    elif kind == "constant":
        node.value = _moved(node.value, rng)
    elif kind == "and or":
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif kind == "arithmetic":
        node.op = SWAPPED[type(node.op)]()
    elif kind == "negation":
        return node.operand  # type: ignore[no-any-return]
    elif kind == "condition":
        return ast.UnaryOp(op=ast.Not(), operand=node)
    elif kind == "returned":
        node.value = ast.Constant(value=None)
    else:
        return ast.Pass()
    return node  # type: ignore[no-any-return]


def _moved(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1))
    return value * rng.choice((0.5, 2.0)) if value else 1.0


# -- which tests reach a file


def imports_of(file: Path) -> set[str]:
    """Every module that a file names in an import, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def nearness() -> Mapping[str, Mapping[str, int]]:
    """For each module, the unit and contract tests that reach it, by how many imports."""
    modules = {_name(file, ROOT / "src"): file for file in (ROOT / "src").rglob("*.py")}
    modules |= {_name(file, ROOT / "tests"): file for file in (ROOT / "tests").rglob("*.py")}
    arrows = {name: imports_of(file) & modules.keys() for name, file in modules.items()}
    found: dict[str, dict[str, int]] = {}
    for folder in UNITS:
        for file in sorted((ROOT / folder).rglob("test_*.py")):
            seen = {_name(file, ROOT / "tests"): 0}
            waiting = list(seen)
            for name in waiting:
                for other in arrows[name] - seen.keys():
                    seen[other] = seen[name] + 1
                    waiting.append(other)
            for name, distance in seen.items():
                found.setdefault(name, {})[str(file.relative_to(ROOT))] = distance
    return found


def _name(file: Path, above: Path) -> str:
    return ".".join(file.relative_to(above).with_suffix("").parts).removesuffix(".__init__")


def rounds_of(place: Place, near: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """The tests' files: first those that import what was changed, or what imports it; then all."""
    tests = near.get(f"steptime.{_name(Path(place.file), Path())}", {})
    first = sorted((t for t in tests if tests[t] <= NEAR), key=lambda t: tests[t])
    return [first, sorted(tests.keys() - first, key=lambda t: tests[t])]


def executing(data: CoverageData, file: Path, place: Place) -> list[str]:
    """The tests that execute a place's lines, without their parameters."""
    by_line = data.contexts_by_lineno(str(file))
    lines = range(place.line, place.end_line + 1)
    contexts = {one for line in lines for one in by_line.get(line, ()) if one}
    return sorted({one.partition("|")[0].partition("[")[0] for one in contexts})


# -- running


def make_tree(folder: Path) -> tuple[Path, str]:
    """A copy of what the tests need, and a Python that imports the package from there."""
    tree = folder / "tree"
    for name in ("src", "tests", "docs", "benchmarks", "examples", "scripts"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tree)
    home = folder / "env"
    venv.create(home, symlinks=True, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    paths = (str(tree / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    (site / "mutants.pth").write_text("\n".join(dict.fromkeys(paths)) + "\n")
    return tree, str(home / "bin" / "python")


def environment(python: str) -> dict[str, str]:
    """Ours, cleaned, with that Python first."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    path = f"{Path(python).parent}:{own['PATH']}"
    return own | {"PATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def first_failure(
    tree: Path, python: str, tests: Sequence[str], limit_s: float, *more: str
) -> str | None:
    """The first test that fails, or says that none ended in time; None if all pass."""
    words = ("-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider")
    process = subprocess.Popen(
        [python, *words, "--hypothesis-seed=0", f"--basetemp={tree.parent / 'b'}", *more, *tests],
        cwd=tree,
        env=environment(python),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return f"no end within {limit_s:g} s"
    if process.returncode in (0, 5):
        return None
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"pytest ended with {process.returncode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What the fast check does with a tree."""

    tree: Path
    python: str
    near: Mapping[str, Mapping[str, int]]
    executed: CoverageData
    units_only: bool

    def first_failure(self, place: Place) -> tuple[str, str | None, int]:
        """The stage that was reached, what failed there, and how many tests were chosen."""
        if failed := wrong_types(self.tree, self.python):
            return "types", failed, 0
        file = self.tree / "src" / "steptime" / place.file
        chosen = executing(self.executed, file, place)
        rounds = [chosen] if chosen else list(filter(None, rounds_of(place, self.near)))
        for tests in rounds:
            words = (*IN_THE_FAST_CHECK, *tests)
            if failed := first_failure(self.tree, self.python, words, UNIT_LIMIT_S):
                return "unit", failed, sum(map(len, rounds))
        if self.units_only:
            return "unit", None, sum(map(len, rounds))
        files = [f"tests/end_to_end/{name}" for name in END_TO_END[place.room]]
        words = ("-n", "2", *IN_THE_FAST_CHECK)
        failed = first_failure(self.tree, self.python, files, CORE_LIMIT_S, *words)
        return "end to end", failed, sum(map(len, rounds))


def wrong_types(tree: Path, python: str) -> str | None:
    """The first line that the type checker refuses."""
    done = subprocess.run(
        [python, "-m", "mypy", "--no-error-summary"],
        cwd=tree,
        env=environment(python),
        capture_output=True,
        text=True,
        timeout=TYPES_LIMIT_S,
    )
    return (done.stdout + done.stderr).splitlines()[0] if done.returncode else None


def try_mutant(place: Place, check: Check, rng: random.Random) -> Mutant:
    """Change the copy, run what the fast check runs, and change it back."""
    file = check.tree / "src" / "steptime" / place.file
    source = file.read_text()
    text, before, after = change(source, place, rng)
    began_s = time.monotonic()
    try:
        rewrite(file, text)
        stage, killed, num_tests = check.first_failure(place)
    finally:
        rewrite(file, source)
    return Mutant(
        place=place,
        before=before,
        after=after,
        killed_by=killed,
        stage=stage,
        num_tests=num_tests,
        took_s=round(time.monotonic() - began_s, 1),
    )


def rewrite(file: Path, text: str) -> None:
    """Write a file with a time of its own: the type checker goes by time and size."""
    then_s = file.stat().st_mtime
    file.write_text(text)
    os.utime(file, (then_s + 2, then_s + 2))


def draw(package: Path, rooms: Sequence[str], num: int, rng: random.Random) -> list[Place]:
    """Places drawn evenly from the rooms that there are."""
    by_room: list[list[Place]] = []
    for room in rooms:
        files = sorted((package / room).rglob("*.py"))
        found = [place for file in files for place in places_in(room, file, package)]
        if found:
            by_room.append(rng.sample(found, len(found)))
    turns = [places[i] for i in range(num) for places in by_room if i < len(places)]
    return turns[:num]


def interval(killed: int, num: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson, 1927)."""
    z, share = 1.96, killed / num
    middle = (share + z * z / (2 * num)) / (1 + z * z / num)
    half = z * math.sqrt(share * (1 - share) / num + z * z / (4 * num * num)) / (1 + z * z / num)
    return middle - half, middle + half


def main() -> None:
    """Try the mutants, print each, and save all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS, metavar="NAME")
    parser.add_argument("--units-only", action="store_true", help="without the end-to-end tests")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    places = draw(ROOT / "src" / "steptime", options.rooms, options.mutants, rng)
    mutants: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="st.") as folder:
        check = unchanged(Path(folder), units_only=options.units_only)
        for place in places:
            one = try_mutant(place, check, rng)
            mutants.append(one)
            how = f"killed by {one.killed_by}" if one.killed_by else "SURVIVED"
            print(f"{place.file}:{place.line} {place.kind}: {one.before} -> {one.after}")
            print(f"    {how} ({one.num_tests} tests, {one.took_s:.0f} s)", flush=True)
            save(options, mutants)
    killed = sum(one.killed_by is not None for one in mutants)
    low, high = interval(killed, len(mutants))
    print(
        f"{killed} of {len(mutants)} killed: {killed / len(mutants):.0%} ({low:.0%} to {high:.0%})"
    )


def unchanged(folder: Path, *, units_only: bool) -> Check:
    """Check the tree without a change, and note which lines each test executes."""
    tree, python = make_tree(folder)
    if failure := wrong_types(tree, python):
        raise SystemExit(f"error: without a change: {failure}")
    words = ("-n", "2", *IN_THE_FAST_CHECK, "--cov", "--cov-context=test", "--cov-report=")
    if failure := first_failure(tree, python, UNITS, ALL_LIMIT_S, *words):
        raise SystemExit(f"error: without a change: {failure}")
    executed = CoverageData(str(tree / ".coverage"))
    executed.read()
    return Check(
        tree=tree, python=python, near=nearness(), executed=executed, units_only=units_only
    )


def save(options: argparse.Namespace, mutants: Sequence[Mutant]) -> None:
    """Write what is known so far."""
    killed = sum(one.killed_by is not None for one in mutants)
    document = {
        **stamp(),
        "seed": options.seed,
        "units_only": options.units_only,
        "num": len(mutants),
        "num_killed": killed,
        "killed_in": Counter(one.stage for one in mutants if one.killed_by is not None),
        "share": killed / len(mutants),
        "interval": interval(killed, len(mutants)),
        "survivors": [asdict(one) for one in mutants if one.killed_by is None],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
