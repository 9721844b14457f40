"""Draws docs/pictures/architecture.svg: the rooms of the package and who imports whom.

Run it after a change to the rooms: `python scripts/gen_architecture_picture.py`; `--stdout` prints
the picture instead of writing it. All of it comes from the code: a room is a folder or a module of
`src/steptime`, its sentence is the first one of its docstring, an arrow is an import. The values
that lie beside each wing (`measure/values`, …) are one room here. An arrow that follows from others
is left out, so that cli ─▶ core does not cross what lies between them. Where two rooms import each
other (no module does, tests/test_architecture.py holds that), the arrow has two heads.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "steptime"
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"

# --- what the code says ---------------------------------------------------------------

# They are loaded by file in the processes of the user's command: no import shows that.
IN_THE_USERS_PROCESS = ("inject", "guest", "record", "levers")
LOADED_BY_FILE = (("inject", "guest"), ("guest", "levers"))
LEFT_OUT = ("", "__main__", "errors")  # nearly everything imports them, or nothing does
VALUES = "values"
OF_VALUES = "The chain of values, beside the wing that makes each"

Arrow = tuple[str, str]


def room_of(path: Path) -> str:
    """The room of `src/steptime` that a file belongs to."""
    return _room(path.relative_to(SRC).with_suffix("").parts)


def _room(parts: Sequence[str]) -> str:
    if len(parts) > 1 and parts[1] == VALUES:
        return VALUES
    return parts[0].replace("__init__", "")


def rooms() -> dict[str, str]:
    """The first sentence of every room."""
    found = {VALUES: OF_VALUES}
    for path in sorted(SRC.iterdir()):
        # What is injected is no package: its one module speaks for it.
        inside = [path / "__init__.py", *sorted(path.rglob("*.py"))] if path.is_dir() else [path]
        source = next((file for file in inside if file.suffix == ".py" and file.exists()), None)
        if source is not None and room_of(path) not in LEFT_OUT:
            found[room_of(path)] = _first_sentence(source.read_text(encoding="utf-8"))
    return found


def _first_sentence(source: str) -> str:
    """That of the docstring, or of the comment on top of a file for very old Pythons."""
    text = ast.get_docstring(ast.parse(source))
    if text is None:
        comment = itertools.takewhile(lambda line: line.startswith("#"), source.splitlines())
        text = "\n".join(line.lstrip("# ") for line in comment)
    paragraph = text.split("\n\n")[0].replace("\n", " ").replace("`", "")
    return re.split(r"(?<=[.;]) ", paragraph)[0].rstrip(".;")


def arrows(known: Iterable[str]) -> Counter[Arrow]:
    """Who imports whom among the rooms and how often, imports for types alone among them."""
    names = set(known)
    found = Counter(LOADED_BY_FILE)
    for path in sorted(SRC.rglob("*.py")):
        room = room_of(path)
        for target in _imported_rooms(path):
            if room in names and target in names and target != room:
                found[room, target] += 1
    return found


def _imported_rooms(path: Path) -> Iterator[str]:
    package = ("steptime", *path.relative_to(SRC).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            modules = [f"{module}.{alias.name}" for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "steptime" and len(parts) > 1:
                yield _room(parts[1:])


def without_circles(counted: Counter[Arrow]) -> set[Arrow]:
    """The arrows less the rarest one of every circle, until there is none."""
    left = Counter(counted)
    while True:
        reached = reachable(set(left))
        circular = [arrow for arrow in left if arrow[0] in reached[arrow[1]]]
        if not circular:
            return set(left)
        del left[min(circular, key=lambda arrow: (left[arrow], arrow))]


def reachable(found: set[Arrow]) -> dict[str, set[str]]:
    """All rooms that each room imports, directly or through others."""
    reached: dict[str, set[str]] = {name: set() for arrow in found for name in arrow}
    changed = True
    while changed:
        changed = False
        for source, target in found:
            new = ({target} | reached[target]) - reached[source]
            if new:
                reached[source] |= new
                changed = True
    return reached


def essential(found: set[Arrow]) -> set[Arrow]:
    """The arrows that do not follow from two or more others; there are no circles."""
    reached = reachable(found)
    return {
        (source, target)
        for source, target in found
        if not any(
            target in reached[middle]
            for first, middle in found
            if first == source and middle != target
        )
    }


# --- where it stands ------------------------------------------------------------------

SWEEPS = 12  # of the ordering; it no longer changes after a few


def layers_of(names: Iterable[str], found: set[Arrow]) -> dict[str, int]:
    """The layer of each room: 0 on the right, and left of everything that it imports."""
    layer: dict[str, int] = {}

    def place(name: str) -> int:
        if name not in layer:
            below = [place(target) for source, target in sorted(found) if source == name]
            layer[name] = 1 + max(below, default=-1)
        return layer[name]

    for name in sorted(names):
        place(name)
    return layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """An arrow as it passes through the layers: a room, bends, a room."""

    stops: tuple[str, ...]
    has_two_heads: bool


def chains(found: set[Arrow], layer: dict[str, int], counted: Counter[Arrow]) -> list[Chain]:
    """Arrows with a bend in each layer that they pass; the bends get their layer."""
    made = []
    for source, target in sorted(found):
        bends = [f"{source}>{target}@{at}" for at in range(layer[source] - 1, layer[target], -1)]
        layer.update({bend: int(bend.rpartition("@")[2]) for bend in bends})
        has_two_heads = (target, source) in counted
        made.append(Chain(stops=(source, *bends, target), has_two_heads=has_two_heads))
    return made


def ordered(layer: dict[str, int], made: list[Chain]) -> list[list[str]]:
    """Each layer from top to bottom, so that few arrows cross: by the mean of the neighbors."""
    columns = [
        sorted(name for name, at in layer.items() if at == number)
        for number in range(max(layer.values()) + 1)
    ]
    near: dict[str, list[str]] = {name: [] for name in layer}
    for chain in made:
        for upper, lower in itertools.pairwise(chain.stops):
            near[upper].append(lower)
            near[lower].append(upper)
    for sweep in range(SWEEPS):
        numbers = range(len(columns)) if sweep % 2 == 0 else range(len(columns) - 1, -1, -1)
        for number in numbers:
            place = {
                name: (index + 0.5) / len(column)
                for column in columns
                for index, name in enumerate(column)
            }
            columns[number].sort(key=lambda name: (_mean(place, near[name]), name))
    for column in columns:  # what runs in the user's process stands together, at the bottom
        column.sort(key=lambda name: name in IN_THE_USERS_PROCESS)
    return columns


def _mean(place: dict[str, float], names: list[str]) -> float:
    return sum(place[name] for name in names) / len(names) if names else 0.5


# --- the picture ----------------------------------------------------------------------

BOX_W, BOX_H, GAP_X, GAP_Y = 176, 66, 36, 14
BEND_H, MARGIN, HEAD = 8, 24, 40
LINE_CHARS, MAX_LINES = 28, 3

Places = dict[str, tuple[float, float]]  # the left end of a box's or a bend's middle line


def draw(known: dict[str, str], columns: list[list[str]], made: list[Chain]) -> str:
    """The rooms as boxes, the highest layer on the left, and the arrows behind them."""

    def height(name: str) -> int:
        return BOX_H if name in known else BEND_H

    def column_height(column: list[str]) -> int:
        return sum(height(name) + GAP_Y for name in column) - GAP_Y

    full_w = len(columns) * (BOX_W + GAP_X) - GAP_X + 2 * MARGIN
    inner = max(column_height(column) for column in columns)
    full_h = HEAD + inner + 2 * MARGIN
    places: Places = {}
    for number, column in enumerate(columns):
        x = MARGIN + (len(columns) - 1 - number) * (BOX_W + GAP_X)
        y = HEAD + MARGIN + (inner - column_height(column)) / 2
        for name in column:
            places[name] = (x, y + height(name) / 2)
            y += height(name) + GAP_Y
    lines = [_curve(chain, places) for chain in made]
    boxes = [_box(name, sentence, *places[name]) for name, sentence in sorted(known.items())]
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{full_w}" height="{full_h}" \
viewBox="0 0 {full_w} {full_h}" role="img">
<title>The rooms of the package and who imports whom</title>
<!-- Drawn by scripts/gen_architecture_picture.py from the imports: do not edit. -->
<style>
text{{font-family:ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif}}
.n{{font-size:15px;font-weight:700;fill:#1f2328}}
.s{{font-size:11px;fill:#57606a}}
.k{{font-size:13px;fill:#57606a}}
path{{fill:none;stroke:#8c959f;stroke-width:1.4}}
.f{{stroke-dasharray:5 4}}
rect{{fill:#ffffff;stroke:#8c959f}}
.u{{fill:#fff8e6;stroke:#bf8700}}
</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto-start-reverse"><polygon points="0,0 8,4 0,8" fill="#8c959f"/></marker></defs>
<rect width="{full_w}" height="{full_h}" rx="10" style="fill:#f6f8fa;stroke:none"/>
<text class="k" x="{MARGIN}" y="32">{KEY}</text>
{chr(10).join(lines)}
{chr(10).join(boxes)}
</svg>
"""


KEY = (
    "An arrow is an import. Yellow rooms run inside the user's processes (record and levers on "
    "both sides); a dashed arrow is a file loaded there."
)


def _curve(chain: Chain, places: Places) -> str:
    """A curve that leaves and enters a box level, and runs straight through bends."""
    x, y = places[chain.stops[0]]
    x += BOX_W
    parts = [f"M{x:.0f} {y:.0f}"]
    for stop in chain.stops[1:]:
        to_x, to_y = places[stop]
        half = (to_x - x) / 2
        parts.append(f"C{x + half:.0f} {y:.0f} {to_x - half:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}")
        x, y = to_x, to_y
        if stop != chain.stops[-1]:
            x += BOX_W
            parts.append(f"H{x:.0f}")
    ends = (chain.stops[0], chain.stops[-1])
    style = ' class="f"' if ends in LOADED_BY_FILE else ""
    start = ' marker-start="url(#a)"' if chain.has_two_heads else ""
    return f'<path{style} d="{"".join(parts)}"{start} marker-end="url(#a)"/>'


def _box(name: str, sentence: str, x: float, y: float) -> str:
    style = ' class="u"' if name in IN_THE_USERS_PROCESS else ""
    words = textwrap.wrap(sentence, LINE_CHARS)
    if len(words) > MAX_LINES:
        words = [*words[: MAX_LINES - 1], words[MAX_LINES - 1][: LINE_CHARS - 2] + " …"]
    top, middle = y - BOX_H / 2, x + BOX_W / 2
    text = "".join(
        f'<text class="s" text-anchor="middle" x="{middle:.0f}" y="{top + 34 + 13 * index:.0f}">'
        f"{escape(line)}</text>"
        for index, line in enumerate(words)
    )
    return (
        f'<rect{style} x="{x:.0f}" y="{top:.0f}" width="{BOX_W}" height="{BOX_H}" rx="6"/>'
        f'<text class="n" text-anchor="middle" x="{middle:.0f}" y="{top + 18:.0f}">{name}</text>'
        f"{text}"
    )


def picture() -> str:
    """The whole picture as SVG."""
    known = rooms()
    counted = arrows(known)
    found = essential(without_circles(counted))
    layer = layers_of(known, found)
    made = chains(found, layer, counted)
    return draw(known, ordered(layer, made), made)


def main() -> int:
    """Write the picture, or print it."""
    if "--stdout" in sys.argv[1:]:
        sys.stdout.write(picture())
    else:
        PICTURE.write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
