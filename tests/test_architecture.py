"""The rules of the house that a machine can hold: who imports whom, what stands where, how big."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import steptime
from steptime.levers import NAMES as LEVERS

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "steptime"
STANDARD = {*sys.stdlib_module_names, "tomllib"}  # which Python 3.10 does not know yet

# Room (a folder, or a top-level module) → what it may import of ours besides itself. A wing's
# `values` are a room of their own: whoever renders or stores them needs nothing else of the wing.
# "" is the package's own __init__. A room that is not here is a decision that has not been made.
BASE = {"core", "errors", "record"}
VALUES = {
    "measure.values": BASE,
    "launch.values": {*BASE, "measure.values"},
    "diagnose.values": {*BASE, "measure.values"},
    "machine.values": {*BASE, "diagnose.values", "measure.values"},
    "verify.values": BASE,
    "compare.values": {*BASE, "measure.values", "diagnose.values"},
    "plan.values": BASE,
    "data.values": {*BASE, "verify.values"},
    "tune.values": {*BASE, "measure.values", "plan.values", "verify.values"},
    "patch.values": {*BASE, "verify.values"},
    "quantize.values": {*BASE, "verify.values"},
    "seek.values": BASE,
}
# Rooms whose rows hold rules and words together, so that whoever renders reads them too.
ROWS = {
    "machine.checks": {*BASE, *VALUES, "machine"},
    "diagnose.ailments": {*BASE, *VALUES, "diagnose"},
}
WINGS = {
    *ROWS,
    "launch",
    "watch",
    "measure",
    "diagnose",
    "machine",
    "compare",
    "verify",
    "plan",
    "isolate",
    "seek",
}
ARROWS = {
    # What it hands on, imported when somebody asks for it.
    "": {"app", "counting", "errors", "notebook", "report"},
    "errors": set(),
    "core": {"errors", "record"},
    "record": set(),
    "guest": {"record"},
    "inject": set(),
    # The library call counts in the caller's own process, as the guest does in a run: one place
    # for the formulas, and both may use torch.
    "counting": {"guest", "measure.values", *BASE},
    # Likewise, on tensors without memory; what goes backward is found as for a count.
    "forecasting": {"guest", "counting", "plan.values", *BASE},
    "levers": set(),  # the guest loads them by file
    **VALUES,
    **ROWS,
    "launch": {*BASE, *VALUES, "watch"},
    "desync": {*BASE, *VALUES},
    "watch": {*BASE, *VALUES, "measure", "desync"},
    "measure": {*BASE, *VALUES},
    "diagnose": {*BASE, *VALUES, "diagnose.ailments"},
    "compare": {*BASE, *VALUES},
    "verify": {*BASE, *VALUES},
    "seek": {*BASE, *VALUES, "verify"},
    # What it hands on, imported when somebody asks for it.
    "plan": {*BASE, *VALUES, "forecasting"},
    # A library of its own, for whoever trains.
    "data": {*BASE, "data.values", "verify.values"},
    "graph": {"core", "errors"},
    "quantize": {"core", "errors", "verify.values", "quantize.values"},
    "methods": {"core", "errors", "levers"},  # the guest loads transforms by file
    "machine": {*BASE, *VALUES},
    "isolate": {*BASE, *VALUES},
    "report": {*BASE, *VALUES, *ROWS, "levers"},
    "export": {*BASE, *VALUES},
    "tune": {*BASE, *VALUES, *WINGS, "levers"},
    "patch": {*BASE, *VALUES, *WINGS, "levers", "tune"},
    "testing": {*BASE, *VALUES, "levers"},
    "app": {
        *BASE,
        *VALUES,
        *WINGS,
        "levers",
        "tune",
        "patch",
        "report",
        "export",
        "data",
        "quantize",
    },
    "cli": {
        *BASE,
        *VALUES,
        *WINGS,
        "levers",
        "tune",
        "report",
        "export",
        "app",
        "quantize",
    },
    # The guest comes into the caller's own process, for as long as a cell runs.
    "notebook": {*BASE, *VALUES, *WINGS, "report", "app", "guest"},
    "__main__": {"cli"},
}
USES_TORCH = {"guest", "inject", "counting", "forecasting", "data", "graph", "methods", "quantize"}
PARENT_THIRD_PARTY = {"msgspec", "rich", "psutil", "tomli", "pynvml"}
# What an extra brings, and the modules that may import it: whoever imports those is ready for it
# not to be there.
VERIFY_MODEL = {"verify/model/", "verify/release/"}
EXTRAS = {
    "transformers": {"forecasting/config_model.py"},
    "libcst": {
        *(f"patch/{name}.py" for name in ("arguments", "bindings", "changes", "ground")),
        *(f"patch/edits/{name}.py" for name in ("calls_of_models", "loaders", "optimizers")),
        *(f"patch/edits/{name}.py" for name in ("switches", "written_attention", "written_gelu")),
        "patch/edits/own_loops.py",
        "patch/source_file.py",
    },
    "argcomplete": {"cli/completion.py"},
    "numpy": {
        "app/quantize/",
        "app/verify/",
        *VERIFY_MODEL,
    },
    "tensorboard": {"app/search/run_metric.py"},
    "scipy": {"app/quantize/curve.py", "verify/convergence/statistics.py", *VERIFY_MODEL},
    **dict.fromkeys(
        ("mapie", "pandas", "sklearn", "sliceline", "statsmodels", "ville"), VERIFY_MODEL
    ),
    "pyarrow": {"app/verify/"},
    "torch": {"app/quantize/"},
    "onnx": {"quantize/"},
    "onnxruntime": {"quantize/"},
    "safetensors": {"app/quantize/"},
    "IPython": {"notebook/magics.py"},
    "optuna": {"app/search/seek_sampler.py"},
    "ray": {"app/search/seek_on_ray.py"},
}


def may_import(path: Path, top: str) -> bool:
    """Whether a file is one that may import a library, or lies in a room that may."""
    return inside(path).startswith(tuple(EXTRAS.get(top, ())))


# Functions of their arguments: no clock, no disk, no process, no chance.
PURE = (
    *(f"machine/checks/{room}/" for room in ("gpu", "network", "node", "software", "threads")),
    *(f"machine/checks/{name}" for name in ("check_row", "run_checks")),
    "machine/read/nccl_log",
    *("core/codec", "core/evidence", "core/devices/hardware", "core/note", "core/process_end"),
    *("core/interval", "core/devices/machine_identity", "core/schema", "core/stats", "core/units"),
    *(f"{wing}/values" for wing in ("launch", "measure", "machine", "patch", "tune", "verify")),
    *("compare/", "desync/", "diagnose/", "plan/", "report/", "seek/", "tune/search/"),
    "verify/convergence/",
    *(
        f"tune/fit/{name}"
        for name in ("choose", "fit_search", "held_parts", "measures", "observed_peak")
    ),
    *("tune/fit/batch_rates", "tune/fit/device_peak", "tune/fit/peak_forecast"),
)
IMPURE_MODULES = {
    *("asyncio", "multiprocessing", "os", "psutil", "random", "shutil", "socket", "sqlite3"),
    *("subprocess", "tempfile", "threading", "time"),
}

MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
MAX_MODULE_LINES = 450
MAX_COMMAND_LINES = 250
MAX_LEVER_LINES = 150
MAX_MODULES = 16

MAY_CATCH_ALL = re.compile(
    r"guest/|app/run/attempt\.py$|cli/main\.py$|inject/.*sitecustomize\.py$"
    r"|levers/tools/forked_copy\.py$"  # in a process of its own, which tells and ends
)
MAY_SPEAK = re.compile(r"cli/|__main__\.py$")


@cache
def modules():
    return sorted(SRC.rglob("*.py"))


def inside(path):
    return path.relative_to(SRC).as_posix()


def room(name):
    """The room that a dotted name of ours lies in: `measure.values` for measure.values.work."""
    parts = name.split(".")
    if len(parts) > 1 and (part := ".".join(parts[:2])) in {*VALUES, *ROWS}:
        return part
    return parts[0]


def part_of(path):
    name = inside(path).removesuffix(".py").replace("/", ".").removesuffix("__init__")
    return room(name.rstrip("."))


def runs_in_users_python(path):
    """Where Steptime may not be installed: loaded by file, in the script's process or a child."""
    return inside(path).startswith(("guest/", "inject/", "record/", "machine/child/"))


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes_of(path):
    """The nodes of a module, by their class."""
    found = {}
    for node in ast.walk(tree_of(path)):
        found.setdefault(type(node), []).append(node)
    return found


def walk(path, *kinds):
    nodes = nodes_of(path)
    return [node for one in nodes if issubclass(one, kinds) for node in nodes[one]]


def place(path, node):
    return f"{inside(path)}:{node.lineno}"


@cache
def imported_names(path):
    """(node, absolute dotted name) of each import, relative ones resolved."""
    return list(_imported_names(path))


def _imported_names(path):
    package = ("steptime", *path.relative_to(SRC).parts[:-1])
    for node in walk(path, ast.Import):
        yield from ((node, alias.name) for alias in node.names)
    for node in walk(path, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        module = ".".join((*base, *filter(None, [node.module])))
        if module == "steptime":  # the package itself, or a part of it
            for alias in node.names:
                is_part = (SRC / alias.name).is_dir() or (SRC / f"{alias.name}.py").is_file()
                yield node, f"steptime.{alias.name}" if is_part else "steptime"
        else:
            yield node, module


def our_imports(path):
    for node, name in imported_names(path):
        if name == "steptime" or name.startswith("steptime."):
            yield node, room(name.removeprefix("steptime").lstrip("."))


def foreign_imports(path):
    for node, name in imported_names(path):
        top = name.split(".")[0]
        if top not in STANDARD and top != "steptime":
            yield node, top


def lines_of_body(function):
    body = function.body
    if ast.get_docstring(function) is not None and len(body) > 1:
        body = body[1:]
    return function.end_lineno - body[0].lineno + 1


def parameters_of(function):
    arguments = function.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)


def names_in(node):
    """The last words of a name, an attribute, or a tuple of them: `builtins.Exception` too."""
    return {
        part.id if isinstance(part, ast.Name) else part.attr
        for part in ast.walk(node)
        if isinstance(part, (ast.Name, ast.Attribute))
    }


# --- who imports whom -----------------------------------------------------------------


def test_there_is_something_to_look_at():
    assert modules()


def test_every_folder_has_its_arrows():
    unknown = {part_of(path) for path in modules()} - set(ARROWS)

    assert not unknown, f"decide what they may import, in ARROWS: {unknown}"


def test_imports_follow_the_arrows():
    wrong = [
        f"{place(path, node)} imports {target or 'the package itself'}"
        for path in modules()
        for node, target in our_imports(path)
        if target != part_of(path) and target not in ARROWS.get(part_of(path), set())
    ]

    assert not wrong, "\n".join(wrong)


def test_the_parent_imports_its_dependencies_and_no_framework():
    wrong = [
        f"{place(path, node)} imports {top}"
        for path in modules()
        if part_of(path) not in USES_TORCH and not runs_in_users_python(path)
        for node, top in foreign_imports(path)
        if top not in PARENT_THIRD_PARTY and not may_import(path, top)
    ]

    assert not wrong, "\n".join(wrong)


def test_the_guest_knows_the_standard_library_its_folder_and_torch_inside_functions():
    wrong = []
    for path in modules():
        if not runs_in_users_python(path):
            continue
        at_top = {id(node) for node in tree_of(path).body}
        known = {"tensorflow", "torch", "sitecustomize"}
        wrong += [f"{place(path, n)} imports {top}" for n, top in foreign_imports(path)
                  if top not in known or id(n) in at_top]  # fmt: skip
        wrong += [
            f"{place(path, node)} names steptime, which the script's Python may not have"
            for node in walk(path, ast.Import, ast.ImportFrom)
            if "steptime" in ast.unparse(node)
        ]

    assert not wrong, "\n".join(wrong)


def test_pure_modules_touch_neither_clock_nor_disk_nor_process():
    wrong = [
        f"{place(path, node)} imports {name}"
        for path in modules()
        if inside(path).startswith(PURE)
        for node, name in imported_names(path)
        if name.split(".")[0] in IMPURE_MODULES
    ]

    assert not wrong, "\n".join(wrong)


def modules_by_name():
    """Dotted name → path of each module, a package standing for its `__init__`."""
    named = {}
    for path in modules():
        parts = ("steptime", *path.relative_to(SRC).with_suffix("").parts)
        named[".".join(parts).removesuffix(".__init__")] = path
    return named


def import_graph():
    """Dotted name → the modules of ours that it imports, anywhere and for type checking too."""
    named = modules_by_name()
    names_of = {path: name for name, path in named.items()}
    graph = {name: set() for name in named}
    for path in modules():
        for node, target in imported_names(path):
            aliases = node.names if isinstance(node, ast.ImportFrom) else ()
            inner = {f"{target}.{alias.name}" for alias in aliases} & named.keys()
            graph[names_of[path]] |= inner or ({target} & named.keys())
    return {name: targets - {name} for name, targets in graph.items()}


def circles_in(graph):
    """The strongly connected components of more than one module (Tarjan, 1972)."""
    order, lowest, stack, circles = {}, {}, [], []

    def visit(name):
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], order[target])
        if lowest[name] == order[name]:
            place_in_stack = stack.index(name)
            circles.append(frozenset(stack[place_in_stack:]))
            del stack[place_in_stack:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return {circle for circle in circles if len(circle) > 1}


# Circles that still wait for their end. None may join them, and one that is gone must go here, too.
KNOWN_CIRCLES: set[frozenset[str]] = set()


def test_no_imports_run_in_a_circle():
    found = circles_in(import_graph())

    assert found <= KNOWN_CIRCLES, [sorted(circle) for circle in found - KNOWN_CIRCLES]
    assert not KNOWN_CIRCLES - found, "a circle is gone: take it out of KNOWN_CIRCLES"


def test_a_circle_is_found_where_there_is_one():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set(), "e": {"a"}}

    assert circles_in(graph) == {frozenset("abc")}


def test_no_wings_import_each_other_in_a_circle():
    whole = {wing: {name.split(".")[0] for name in ARROWS[wing] - set(VALUES)} for wing in WINGS}
    graph = {wing: (found & WINGS) - {wing} for wing, found in whole.items() if wing not in ROWS}
    while graph:
        free = {wing for wing, found in graph.items() if not found & set(graph)}
        assert free, f"these wings import each other: {', '.join(sorted(graph))}"
        graph = {wing: found for wing, found in graph.items() if wing not in free}


def test_no_command_imports_another():
    verbs = {f"steptime.cli.{path.stem}" for path in commands()}
    wrong = [
        f"{name} imports {target}"
        for name, targets in import_graph().items()
        if name in verbs
        for target in targets & (verbs | {"steptime.cli.main"})
    ]

    assert not wrong, "\n".join(wrong)


def commands():
    """The modules of `cli/` that are a command: those that say how they are used."""
    return [
        path
        for path in modules()
        if part_of(path) == "cli"
        and any("USAGE" in names_in(node.targets[0]) for node in walk(path, ast.Assign))
    ]


# --- what stands where ----------------------------------------------------------------


def test_only_the_command_line_prints_and_exits():
    wrong = [
        f"{place(path, call)}: {ast.unparse(call.func)}"
        for path in modules()
        if not MAY_SPEAK.match(inside(path))
        for call in walk(path, ast.Call)
        if ast.unparse(call.func) in {"print", "exit", "quit", "sys.exit", "SystemExit"}
    ]

    assert not wrong, "\n".join(wrong)


def test_the_library_knows_nothing_of_a_command_line():
    ours = {"sys.argv", "sys.exit", "sys.stdin", "sys.stdout", "sys.stderr", "input"}
    wrong = [
        f"{place(path, node)}: {ast.unparse(node)}"
        for path in modules()
        if part_of(path) == "app"
        for node in walk(path, ast.Attribute, ast.Name)
        if ast.unparse(node) in ours
    ] + [
        f"{place(path, node)} imports argparse"
        for path in modules()
        if part_of(path) == "app"
        for node, name in imported_names(path)
        if name == "argparse"
    ]

    assert not wrong, "\n".join(wrong)


def test_everything_is_caught_in_five_places_only():
    broad = {"Exception", "BaseException"}
    wrong = []
    for path in modules():
        if MAY_CATCH_ALL.match(inside(path)):
            continue
        wrong += [
            place(path, handler)
            for handler in walk(path, ast.ExceptHandler)
            if handler.type is None or names_in(handler.type) & broad
        ]
        wrong += [
            place(path, call)
            for call in walk(path, ast.Call)
            if "suppress" in names_in(call.func) and any(names_in(a) & broad for a in call.args)
        ]

    assert not wrong, "\n".join(wrong)


# --- how big --------------------------------------------------------------------------


def test_functions_are_short_and_take_few_parameters():
    wrong = []
    for path in modules():
        for function in walk(path, ast.FunctionDef, ast.AsyncFunctionDef):
            lines, parameters = lines_of_body(function), parameters_of(function)
            if lines > MAX_FUNCTION_LINES:
                wrong.append(f"{place(path, function)} {function.name}: {lines} lines")
            if function.name in steptime.__all__ and place(path, function).startswith("app/"):
                parameters -= num_options(function)
            if parameters > MAX_PARAMETERS:
                wrong.append(f"{place(path, function)} {function.name}: {parameters} parameters")

    assert not wrong, "\n".join(wrong)


def num_options(function):
    """Keywords with a default: those of the package's own functions are options of a command."""
    return sum(default is not None for default in function.args.kw_defaults)


def limit_of(path):
    if part_of(path) == "cli" and path.name != "main.py":
        return MAX_COMMAND_LINES
    if part_of(path) == "levers" and path.stem in LEVERS:
        return MAX_LEVER_LINES
    return MAX_MODULE_LINES


def test_a_folder_holds_at_most_sixteen_modules():
    found = {}
    for path in modules():
        if path.name != "__init__.py":
            found.setdefault(path.parent.relative_to(SRC).as_posix(), []).append(path)
    crowded = {name: len(paths) for name, paths in found.items() if len(paths) > MAX_MODULES}

    wrong = [f"{name}: {n} modules" for name, n in crowded.items()]
    assert not wrong, f"at most {MAX_MODULES}, make a room:\n" + "\n".join(wrong)


def test_modules_are_short():
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    wrong = [
        f"{inside(path)}: {size} lines, at most {limit_of(path)}"
        for path, size in sizes.items()
        if size > limit_of(path)
    ]

    assert not wrong, "\n".join(wrong)


# File names that stand twice, with the reason.
SAME_FILE_NAMES = {
    "__init__.py": "each package has one",
    "values.py": "each wing's values stand beside it",
    "levers.py": "the contract of levers is named like their room; beside the command `levers`",
    "maxk.py": "the library of the method, and the lever that puts it into a script",
    "schema.py": "the version of the files, and the command that prints what a document holds",
    "search.py": "the door of the room of `sweep`, beside the search for levers of `tune`",
}
# Class names that stand twice, with the reason.
SAME_CLASS_NAMES: dict[str, str] = {
    "Loader": "the library's loader has the name that people look for; the other is a lever's fact",
}


def test_no_file_name_stands_twice():
    places = {}
    for path in modules():
        places.setdefault(path.name, []).append(inside(path))
    verbs = {path.name for path in commands()}
    wrong = [
        found
        for name, found in places.items()
        if len(found) > 1
        and name not in SAME_FILE_NAMES
        and not (name in verbs and {one.split("/")[0] for one in found} == {"app", "cli"})
    ]

    assert not wrong, wrong
    unused = {name for name in SAME_FILE_NAMES if len(places.get(name, ())) < 2}
    assert not unused, f"no longer twice: {unused}"


def test_no_class_name_stands_twice():
    places = {}
    for path in modules():
        for node in walk(path, ast.ClassDef):
            places.setdefault(node.name, []).append(inside(path))
    wrong = {
        name: found
        for name, found in places.items()
        if len(found) > 1 and name not in SAME_CLASS_NAMES
    }

    assert not wrong, wrong
    unused = {name for name in SAME_CLASS_NAMES if len(places.get(name, ())) < 2}
    assert not unused, f"no longer twice: {unused}"


# --- what is injected -----------------------------------------------------------------


def newer_than_python_2(tree):
    """Nodes that Python 2.7 could not parse."""
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.YieldFrom, ast.Await,
             ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.MatMult, ast.Match)  # fmt: skip
    for node in ast.walk(tree):
        wrong = (
            isinstance(node, newer)
            or (isinstance(node, ast.Constant) and node.value is ...)
            or (isinstance(node, ast.Raise) and node.cause is not None)
            or (isinstance(node, ast.ClassDef) and node.keywords)
            or (isinstance(node, ast.FunctionDef) and node.returns is not None)
            or (isinstance(node, ast.arguments) and (node.kwonlyargs or node.posonlyargs))
            or (isinstance(node, ast.arg) and node.annotation is not None)
            or (isinstance(node, ast.Dict) and None in node.keys)
            or (isinstance(node, (ast.List, ast.Tuple, ast.Set)) and has_star(node.elts))
            or (isinstance(node, ast.Call) and has_star(node.args[:-1]))
            or (isinstance(node, ast.Call) and [k.arg for k in node.keywords].count(None) > 1)
        )
        if wrong:
            yield node


def has_star(nodes):
    return any(isinstance(node, ast.Starred) for node in nodes)


@pytest.mark.parametrize("path", sorted((SRC / "inject").rglob("*.py")), ids=lambda p: p.name)
def test_what_is_injected_can_be_read_by_python_2(path):
    text = path.read_text(encoding="utf-8")

    assert text.isascii(), "Python 2 reads ASCII unless told otherwise"
    assert [ast.unparse(node) for node in newer_than_python_2(tree_of(path))] == []
    assert not re.search(r"\b\d+_\d", text), "digits grouped by underscores"


@pytest.mark.parametrize(
    "text",
    ["f'{x}'", "x: int = 1", "def f(a: int): pass", "def f() -> int: pass", "(x := 1)",
     "def f(*, a): pass", "def f(a, /): pass", "def f():\n x = 1\n def g():\n  nonlocal x",
     "raise A from b", "class A(metaclass=B): pass", "x = ...", "[*a]", "{**a}", "f(*a, b)",
     "first, *rest = a", "async def f(): pass"],
)  # fmt: skip
def test_a_newer_syntax_is_noticed(text):
    assert list(newer_than_python_2(ast.parse(text)))


def test_the_injected_folder_on_the_path_holds_one_file_alone():
    folders = {path.parent for path in (SRC / "inject").rglob("sitecustomize.py")}

    for folder in folders:
        names = {path.name for path in folder.iterdir() if path.name != "__pycache__"}
        assert names == {"sitecustomize.py"}


# --- what is written ------------------------------------------------------------------


def text_files():
    """Files of the repository that a person wrote, found without git."""
    made_by_tools = {".git", "__pycache__", "build", "dist", ".steptime", ".hypothesis"}
    pending = [ROOT]
    while pending:
        for path in pending.pop().iterdir():
            if path.name in made_by_tools or path.name.startswith(".venv"):
                continue
            if path.is_dir() and not path.name.endswith("_cache"):
                pending.append(path)
            elif path.is_file() and b"\0" not in path.read_bytes():
                yield path


def test_no_path_of_somebodys_machine_is_written_down():
    # Spelled apart, so that this file does not find itself.
    somewhere = re.compile(r"(?<![\w.\-*])/(?:" + "|".join(["work", "root", "farm"]) + r")(?:/|\b)")
    wrong = []
    for path in text_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        wrong += [
            f"{path.relative_to(ROOT)}: {text[max(0, match.start() - 20) : match.end() + 20]!r}"
            for match in somewhere.finditer(text)
        ]

    assert not wrong, "\n".join(wrong)


# --- the record -----------------------------------------------------------------------

# What lines and rows of the record hold under names that are the format's alone.
RECORD_KEYS = {"k", "rows", "row", "rw", "rc", "rd", "sites", "breaks", "recompiles"}
RECORD_FILES = re.compile(r"^(?:rank|worker|quality|processes|host|stalls|count)\S*\.jsonl$")
# They speak a format of their own: the machine's child with its parent, a contained child too.
OTHER_LINES = ("machine/", "isolate/")


def reads_the_record(path):
    """Whether the record's format is its business, or Python 2 must read it."""
    return inside(path).startswith(("record/", "inject/", *OTHER_LINES))


def keys_read(node):
    """The names that an expression looks up: `line["rows"]`, `line.get("rows")`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"get", "pop"}:
        key = node.args[0] if node.args else None
    else:
        return set()
    is_text = isinstance(key, ast.Constant) and isinstance(key.value, str)
    return {key.value} if is_text else set()


def test_only_the_record_unpacks_lines_and_rows():
    wrong = [
        f"{place(path, node)}: {ast.unparse(node)}"
        for path in modules()
        if not reads_the_record(path)
        for node in walk(path, ast.Subscript, ast.Call)
        if keys_read(node) & RECORD_KEYS and ast.unparse(node) != "bound['k']"  # of an attention
    ]

    assert not wrong, "\n".join(wrong)


def test_lines_are_named_by_the_words_of_the_record():
    wrong = [
        f"{place(path, node)}: {ast.unparse(value)}"
        for path in modules()
        if not reads_the_record(path)
        for node in walk(path, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "k" and isinstance(value, ast.Constant)
    ]
    wrong += [
        f"{place(path, node)}: {node.value}"
        for path in modules()
        if not reads_the_record(path)
        for node in walk(path, ast.Constant)
        if isinstance(node.value, str) and RECORD_FILES.match(node.value)
    ]

    assert not wrong, "\n".join(wrong)


def test_a_file_of_lines_has_one_reader():
    documents = {  # one JSON document each, and no line of the record
        *("app/run/beside_process.py", "app/stored/run_index.py", "core/codec.py", "core/store.py"),
        *(
            "app/verify/prove_training.py",
            "app/search/run_metric.py",
            "app/verify/verify_training.py",
        ),
        "data/sources/formats/jsonl_files.py",  # a user's data
        "desync/recorded_calls.py",
        "levers/tools/forked_copy.py",
        *("levers/pictures/prepared.py", "levers/lever_evidence.py"),
        *("guest/trial/trial_plan.py", "measure/fold/run_records.py", "measure/source/scan.py"),
        "patch/notebook_cells.py",
        *("report/words/run/compare_words.py", "testing/levers.py", "tune/study/study_folder.py"),
        *(
            "tune/study/recorded_answers.py",
            "tune/trials/facts/other_python.py",
            "tune/trials/facts/tried_writes.py",
            "watch/stalls/process_stacks.py",
            "watch/stalls/rank_stacks.py",
        ),
    }
    wrong = [
        place(path, call)
        for path in modules()
        if not reads_the_record(path) and inside(path) not in documents
        for call in walk(path, ast.Call)
        if ast.unparse(call.func) in {"json.loads", "json.load", "loads"}
    ]

    assert not wrong, "\n".join(wrong)


# --- the door to files of other people --------------------------------------------------

# Modules that open a file for reading past `record.regular_file`, with the reason.
OPENS_ITSELF = {
    "record/regular_file.py": "it is the door",
    "app/run/run_end.py": "a file of the kernel",
    "errors.py": "what the maker of this Python's environment wrote",
    "core/devices/control_groups.py": "files of the kernel and the system",
    "core/fallback_store.py": "a folder, to check whose it is",
    "core/store.py": "what it has just written, to force it to the disk",
    "levers/host/swapped_code.py": "a file of the script, which runs in the same process",
    "data/timed_reads.py": "a file of the kernel, and files that it only drops from the page cache",
    "data/pictures.py": "bytes in memory",
    "data/convert/prediction.py": "a file of the kernel",
    "isolate/broker/broker.py": "a file of the kernel",
    "isolate/broker/broker_files.py": "what its own child opens in the child's own folder",
    "isolate/broker/broker_sockets.py": "files of the kernel",
    "isolate/left/left_behind.py": "files of the kernel",
    "isolate/left/left_folders.py": "folders that it takes away, by descriptor and past no link",
    "isolate/broker/waiting_call.py": "files of the kernel",
    "isolate/inside.py": "files of the kernel",
    "isolate/launcher.py": "a pipe of its own",
    "isolate/plan_door.py": "a file of the kernel",
    "isolate/overlay/layers.py": "files of the kernel and of the system",
    "isolate/overlay/mounts.py": "files of the kernel",
    "isolate/overlay/namespaces.py": "files of the kernel",
    "isolate/probe.py": "what its own child wrote, and files of the kernel",
    "isolate/left/writes.py": "what the guest of its own child noted",
    "launch/filesystems.py": "a file of the kernel",
    "launch/origin.py": "a file of the kernel",
    "launch/ptrace_leave.py": "a file of the kernel",
    "launch/signal_witness.py": "a file of the kernel",
    "launch/user_command.py": "a pipe of its own, and a file of the kernel",
    "levers/tools/forked_copy.py": "a file of the kernel",
    "levers/pictures/prepared.py": "the guest loads it, and it knows the standard library alone",
    "machine/_files.py": "files of the kernel",
    "machine/read/read_sshd.py": "files of the system",
    "record/live/process_identity.py": "files of the kernel",
    "testing/levers.py": "the source of a lever that the caller wrote",
    "tune/trials/facts/resources.py": "files of the kernel",
    "watch/host/machine_counters.py": "files of the kernel",
    "levers/pictures/decoded_images.py": "pictures of the training, as Pillow reads them",
    "watch/host/private_memory.py": "files of the kernel",
    "watch/stalls/process_stacks.py": "files of the kernel",
    "watch/host/processes.py": "files of the kernel",
    "watch/stalls/rank_stacks.py": "a file of the kernel",
    "watch/host/training_processes.py": "files of the kernel",
    "watch/host/unwatched.py": "files of the kernel",
}
WRITES = ("'w", "'a", "'x", "O_WRONLY", "O_CREAT", "O_PATH", "O_DIRECTORY", "os.devnull")


def opens_for_reading(path):
    """Calls that open or read a file: `open(x)`, `x.open()`, `x.read_text()`, `os.open(x)`."""
    for call in walk(path, ast.Call):
        name, text = ast.unparse(call.func), ast.unparse(call)
        reads = name == "open" or name.endswith((".open", ".read_text", ".read_bytes"))
        is_file = not name.startswith(("webbrowser.", "resources."))
        if reads and is_file and not any(word in text for word in WRITES):
            yield call


def test_files_of_other_people_are_read_through_one_door():
    reading = {inside(p): list(opens_for_reading(p)) for p in modules()
               if not runs_in_users_python(p) or inside(p).startswith("record/")}  # fmt: skip
    wrong = [
        f"{name}:{call.lineno}: {ast.unparse(call)[:80]}"
        for name, calls in reading.items()
        for call in calls
        if name not in OPENS_ITSELF
    ]

    assert not wrong, "read it with `record.regular_file`, or give a reason:\n" + "\n".join(wrong)
    unused = {name for name in OPENS_ITSELF if not reading.get(name)}
    assert not unused, f"they no longer open a file: {unused}"


def test_a_number_in_a_variable_is_read_in_one_way():
    """For `²` str.isdigit is true, and int() raises."""
    wrong = [
        f"{place(path, call)}: {ast.unparse(call)}"
        for path in modules()
        for call in walk(path, ast.Call)
        if ast.unparse(call.func) in {"int", "float"}
        and any("environ" in ast.unparse(argument) for argument in call.args)
        and inside(path) != "machine/child/collectives.py"  # a rank whose launcher was checked
    ]

    assert not wrong, "\n".join(wrong)
