"""The blocks of a report: what it says, without how it is shown.

In: what the makers of reports know. Out: values that `text`, `html` and `markdown` paint. Text of
a block is plain or `rich` Text whose styles are those of a terminal; nothing in it is markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rich.text import Text

Inline: TypeAlias = str | Text
Only = Literal["terminal", "screen", "page"]
"""Text alone (a terminal and Markdown), a terminal alone, or the page alone."""

Severity = Literal["info", "warning", "critical", "good", "bad"]


@dataclass(frozen=True, slots=True)
class Blank:
    """An empty line of a terminal; nothing elsewhere."""


@dataclass(frozen=True, slots=True)
class Labeled:
    """A paragraph with a label; on a terminal, of at most `max_lines` lines where that is given."""

    label: str
    text: Inline
    style: str = ""
    max_lines: int | None = None


@dataclass(frozen=True, slots=True)
class Headline:
    """What matters most, in two parts: `title` is what it is, `text` says more of it.

    On a terminal it has the whole sentences that fit `max_lines`, where that is given.
    """

    label: str
    title: str
    text: Inline = ""
    severity: str = "info"  # warning, critical, good, bad
    max_lines: int | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """A title within a part."""

    text: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command to type, behind the words that say what it is for."""

    command: str
    label: str = ""
    lead: Inline = ""
    is_below: bool = False  # on a terminal, the command has a line of its own


@dataclass(frozen=True, slots=True)
class Code:
    """Text whose lines are kept: a file, a change of code; a terminal shows all if `is_whole`.

    `lead` says what it is; of the language `diff`, a terminal shows what is taken out and put in.
    """

    text: str
    label: str = ""
    language: str = ""
    is_whole: bool = False
    lead: Inline = ""


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    items: Sequence[Inline]
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell that draws fractions of one whole, each in the color of its kind, from `begins` on."""

    parts: Sequence[tuple[str, float]]
    begins: float = 0.0
    tone: str = "cyan"  # on a terminal
    reach: tuple[float, float] | None = None  # an interval of its end


@dataclass(frozen=True, slots=True)
class Reach:
    """A cell that draws an interval on a scale, with a mark at `one` and the noise around it.

    Places are fractions of the cell. `interval` is low, estimate, high; None draws the marks alone.
    """

    interval: tuple[float, float, float] | None
    one: float
    kind: str = "even"
    noise: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Ticks:
    """The heading of cells with a `Reach`: words at places, and whether a narrow page has each."""

    marks: Sequence[tuple[str, float, bool]]


@dataclass(frozen=True, slots=True)
class Markup:
    """A picture in a cell that only the page has: markup that `report.html` made."""

    markup: str


Cell: TypeAlias = Inline | Bar | Reach | Ticks | Markup


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Rows of cells below a heading.

    Args:
        heading: the cells of the first row.
        rows: the cells of the other rows.
        left: how many columns, from the left, are text; the others are numbers.
        name: what the table shows, for people who hear the page; also its class on the page.
        label: on a terminal, stands beside the first row, and the table is indented.
        notes: a sentence under each row; empty for none.
        cut_last: on a terminal, the last column is shortened to the width that is left.
        most: rows that a terminal shows; the page folds those beyond its own number.
    """

    heading: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    left: int = 1
    name: str = ""
    kind: str = ""
    label: str | None = None
    notes: Sequence[Inline] = ()
    cut_last: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Tile:
    """A number under its name, with what it is of."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The few numbers that people look for first; a terminal has them in its lines."""

    tiles: Sequence[Tile]


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot; `spread` is a band (low, high) at each point.

    `tips` says more of each point, for whoever rests the pointer on its mark.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    spread: Sequence[tuple[float, float]] = ()
    color: str = "#0072b2"
    is_dashed: bool = False
    has_marks: bool = False
    is_stepped: bool = False
    width: float = 1.6
    has_line: bool = True
    is_filled: bool = False  # the band in full color
    mark_size: float = 9.0
    tips: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Shade:
    """A part of the axis that is shaded behind the lines."""

    name: str
    color: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LinePlot:
    """Lines over one axis.

    Args:
        title: what it shows; also read aloud.
        curves: what is drawn.
        levels: horizontal lines, dashed, each with its words.
        x_name: what is across.
        x_unit, y_unit: how values are written (as of `core.units`), or their unit.
        note: what to know beside it.
        y_range: where the scale begins and ends, if not at the lowest and the highest value.
        stretches: parts of the axis that are shaded.
        x_range: as `y_range`, across.
    """

    title: str
    curves: Sequence[Curve]
    levels: Sequence[tuple[str, float]] = ()
    x_name: str = ""
    x_unit: str = ""
    y_unit: str = ""
    note: str = ""
    y_range: tuple[float, float] | None = None
    is_log: bool = False
    stretches: Sequence[Shade] = ()
    x_range: tuple[float, float] | None = None
    is_log_x: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that a page keeps closed and a terminal does not show."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = (
    Blank
    | Labeled
    | Headline
    | Heading
    | CommandLine
    | Code
    | Items
    | TableBlock
    | Tiles
    | LinePlot
    | Fold
)


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks that belong together.

    Args:
        title: of its section on the page; parts of one title share a section, and parts without
            a title stand at the top, as a card where one of their blocks is a `Headline`.
        blocks: what it says.
        rank: 0 is never left out; of others, the highest rank goes first where a terminal is full.
        name: how it is called where it was left out.
        only: where it is shown, if not everywhere.
        brief: stands for the blocks where a terminal has little room, before the section goes.
        brief_rank: its rank then.
    """

    title: str
    blocks: Sequence[Block]
    rank: int = 0
    name: str = ""
    only: Only | None = None
    brief: Sequence[Block] = ()
    brief_rank: int = 0


@dataclass(frozen=True, slots=True)
class Sheet:
    """A whole report.

    Args:
        kind: what it is of: `run`, `study`, `fit`.
        command: the user's words.
        facts: id, when, how it ended, in one line.
        parts: the rest, in order.
        style: of the facts on the page, where they tell of a failure.
        is_headed: whether a terminal begins with command and facts.
        title: of what has no command; a terminal leaves it out.
    """

    kind: str
    command: Sequence[str] = ()
    facts: Sequence[str] = ()
    parts: Sequence[Section] = field(default=())
    style: str = ""
    is_headed: bool = True
    title: str = ""
