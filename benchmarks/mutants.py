"""How many small mistakes in the code that judges the fast check would notice.

    python benchmarks/mutants.py [--mutants 60] [--seed 12] [--rooms NAME ...] [--units-only]

A mutant is the package with one random change in one of its rooms: a comparison turned round, a
constant moved, a condition negated, `and` for `or`, plus for minus, a statement left out, nothing
returned. Each is run, in a copy of the tree, against the unit and contract tests whose imports
reach the changed file, the nearest first and up to the first failure, then against the
end-to-end tests of the fast check that belong to its room. A mutant is killed if a test fails or
does not end in time. Some survivors change nothing that anybody could notice, which is for a reader
to judge. The share that was killed, with its 95 % interval, and every mutant go to
benchmarks/results/mutants.json. All these tests must pass without a change, which is tried first.
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
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks" / "results" / "mutants.json"
ROOMS = ("diagnose", "verify", "tune", "record", "measure")
END_TO_END = {
    "diagnose": ("test_ailments.py", "test_specimens.py"),
    "measure": ("test_specimens.py", "test_rare_loops.py", "test_series.py", "test_profile.py"),
    "record": ("test_specimens.py", "test_rare_loops.py", "test_trials.py", "test_bad_days.py"),
    "tune": ("test_worlds.py", "test_recipe_runs.py", "test_tune_command.py"),
    "verify": ("test_quality.py",),
}
"""What of the end-to-end tests belongs to a room."""
UNITS = ("tests/unit", "tests/contract")
UNIT_LIMIT_S, CORE_LIMIT_S = 180.0, 480.0  # a busy machine takes its time
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change that was tried, and what noticed it; `killed_by` is None for a survivor."""

    place: Place
    before: str
    after: str
    killed_by: str | None
    stage: str
    num_files: int
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
        case ast.Expr(value=ast.Constant()):
            return [node]
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
    tree = ast.parse(source)
    node = list(ast.walk(tree))[place.node]
    before = ast.unparse(node)
    new = _changed(copy.deepcopy(node), place.kind, rng)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(one is node for one in value):
                setattr(parent, name, [new if one is node else one for one in value])
    text = ast.unparse(ast.fix_missing_locations(tree))
    return text, before.splitlines()[0][:160], ast.unparse(new).splitlines()[0][:160]


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
        node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
    elif kind == "returned":
        node.value = ast.Constant(value=None)
    else:
        return ast.copy_location(ast.Pass(), node)
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


def try_mutant(
    place: Place,
    tree: Path,
    python: str,
    near: Mapping[str, Mapping[str, int]],
    *,
    rng: random.Random,
    units_only: bool,
) -> Mutant:
    """Change the copy, run what reaches the change, and change it back."""
    file = tree / "src" / "steptime" / place.file
    source = file.read_text()
    text, before, after = change(source, place, rng)
    began_s, stage, killed, num_files = time.monotonic(), "unit", None, 0
    try:
        file.write_text(text)
        for tests in filter(None, rounds_of(place, near)):
            num_files += len(tests)
            killed = killed or first_failure(tree, python, tests, UNIT_LIMIT_S)
        if killed is None and not units_only:
            stage = "end to end"
            chosen = [f"tests/end_to_end/{name}" for name in END_TO_END[place.room]]
            fast = "not slow or core"
            killed = first_failure(tree, python, chosen, CORE_LIMIT_S, "-n", "2", "-m", fast)
    finally:
        file.write_text(source)
    return Mutant(
        place=place,
        before=before,
        after=after,
        killed_by=killed,
        stage=stage,
        num_files=num_files,
        took_s=round(time.monotonic() - began_s, 1),
    )


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
        tree, python = make_tree(Path(folder))
        near = nearness()
        if failure := first_failure(tree, python, UNITS, ALL_LIMIT_S, "-n", "2"):
            raise SystemExit(f"error: without a change: {failure}")
        for place in places:
            one = try_mutant(place, tree, python, near, rng=rng, units_only=options.units_only)
            mutants.append(one)
            how = f"killed by {one.killed_by}" if one.killed_by else "SURVIVED"
            print(
                f"{place.file}:{place.line} {place.kind}: {one.before} -> {one.after}", flush=True
            )
            print(f"    {how} ({one.num_files} files, {one.took_s:.0f} s)", flush=True)
            save(options, mutants)
    killed = sum(one.killed_by is not None for one in mutants)
    low, high = interval(killed, len(mutants))
    print(
        f"{killed} of {len(mutants)} killed: {killed / len(mutants):.0%} ({low:.0%} to {high:.0%})"
    )


def save(options: argparse.Namespace, mutants: Sequence[Mutant]) -> None:
    """Write what is known so far."""
    killed = sum(one.killed_by is not None for one in mutants)
    document = {
        "seed": options.seed,
        "units_only": options.units_only,
        "num": len(mutants),
        "num_killed": killed,
        "share": killed / len(mutants),
        "interval": interval(killed, len(mutants)),
        "mutants": [asdict(one) for one in mutants],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
