"""One description, three painters: what each makes of the same blocks."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

from steptime.report.blocks.phrasing import capitalized, joined, labeled, sections
from steptime.report.blocks.values import (
    Bar,
    Blank,
    Code,
    CommandLine,
    Curve,
    Fold,
    Headline,
    Items,
    Labeled,
    LinePlot,
    Reach,
    Section,
    Sheet,
    TableBlock,
    Ticks,
)
from steptime.report.html.paint_html import paint_page
from steptime.report.markdown.paint_markdown import paint_markdown
from steptime.report.text.paint_text import print_blocks, print_report

EVIL = "<i>&|*`[x](y)"
ADDRESS = "https://example.org/" + "a_b/" * 30


def text_of(report, *, width=80, room=None, terminal=False):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, _environ={})
    print_report(report, console=console, room=room, how="steptime show -v")
    return re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())


def sheet(*blocks, title="Parts", **more):
    return Sheet(kind="thing", command=("python", "a b.py"), parts=[Section(title, blocks)], **more)


def test_the_same_words_reach_a_terminal_a_page_and_markdown():
    report = sheet(
        Headline("outcome", "it fits", "by half", severity="good"),
        Labeled("memory", joined(["3 GiB", "of 4 GiB"])),
        TableBlock(("part", "time"), [("forward", "3 ms")], notes=["all layers"]),
        CommandLine("steptime run -- x", "next", "go on: "),
    )
    for painted in (text_of(report), paint_page(report), paint_markdown(report)):
        words = re.sub(r"[*#|]|<[^>]+>", " ", painted)
        for told in ("it fits", "by half", "3 GiB · of 4 GiB", "forward", "3 ms", "all layers"):
            assert told.lower() in " ".join(words.lower().split())
        assert "steptime run -- x" in painted
        assert "\ue000" not in painted


def test_a_terminal_of_80_columns_folds_between_parts_and_keeps_commands_whole():
    parts = joined([f"part {number} of it" for number in range(12)])
    command = "steptime tune --levers " + ",".join(["autocast"] * 9) + " -- python train.py"
    text = text_of(sheet(Labeled("parts", parts), CommandLine(command, "next", "try: ")))

    assert f"\n{' ' * 11}{command}\n" in text
    told = [line for line in text.splitlines() if "of it" in line]
    assert len(told) > 1
    assert max(map(len, told)) <= 80
    assert all(line.rstrip(" ·").endswith("of it") for line in told)


def test_an_address_is_not_broken_and_is_a_link_in_markdown():
    report = sheet(Labeled("source", f"see {ADDRESS}."), Items([ADDRESS]))

    assert text_of(report).count(ADDRESS) == 2
    assert paint_markdown(report).count(f"<{ADDRESS}>") == 2


def test_what_the_user_wrote_is_no_markup_anywhere():
    blocks = (
        Labeled(EVIL, EVIL),
        Labeled("", Text(EVIL, style="bold")),
        TableBlock((EVIL,), [(EVIL,)], notes=[EVIL], name=EVIL),
        CommandLine(EVIL, EVIL, EVIL),
        Code(f"```\n{EVIL}"),
        Items([EVIL]),
    )
    report = sheet(*blocks, title=EVIL, facts=(EVIL, "\x1b[31m"))
    page, markdown = paint_page(report), paint_markdown(report)

    assert "<i>&" not in page
    assert "\x1b" not in page + markdown + text_of(report)
    inline = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", markdown)  # what is fenced needs no escape
    assert r"\<i\>&\|\*\`\[x\](y)" in inline
    assert not re.search(r"(?<!\\)[<|`]i?>?&", inline)
    assert "````\n```\n" in markdown  # the fence is longer than what it holds


def test_bars_and_intervals_are_drawn_where_there_is_room():
    one = Bar([("whole", 0.25)], begins=0.5)
    ticks = Ticks([("1.00x", 0.5, True)])
    report = sheet(
        TableBlock(("part", "", "time"), [("late", one, "1 ms")], left=2),
        TableBlock(("gain", ticks), [("up", Reach((0.6, 0.8, 0.9), 0.5, "gain", (0.4, 0.6)))]),
    )
    text, page = text_of(report), paint_page(report)

    (late,) = [line for line in text.splitlines() if line.startswith("late")]
    assert late.index("█") == len("late") + 2 + 8  # half of the 16 columns of a bar
    assert late.count("█") == 4
    (up,) = [line for line in text.splitlines() if line.startswith("up")]
    assert up.index("│") < up.index("├") < up.index("●") < up.index("┤")
    assert "left:50.00%;width:25.00%" in page
    assert 'class="noise" style="left:40.00%;width:20.00%"' in page
    assert "█" not in paint_markdown(report)


def test_a_table_shows_its_first_rows_on_a_terminal_and_all_of_them_elsewhere():
    table = TableBlock(("n",), [(f"row {n}",) for n in range(12)], most=8, notes=["why"] * 12)
    report = sheet(table)

    assert text_of(report).count("why") == 8
    assert "and 4 more" in text_of(report)
    assert "row 11" in paint_page(report)
    assert "row 11" in paint_markdown(report)


def test_a_plot_and_what_is_folded_leave_no_gap_on_a_terminal():
    curve = Curve("a", [(0.0, 1.0), (1.0, 2.0)], has_marks=True)
    plot = LinePlot("A curve", [curve], levels=[("the limit", 1.5)])
    parts = [("", [Labeled("a", "b")]), ("Drawn", [plot, Fold("more", [Labeled("c", "d")])])]
    report = Sheet(kind="thing", parts=[*sections(parts), Section("", [Labeled("next", "x")])])

    assert text_of(report) == "a          b\n\nnext       x\n"
    assert len(re.findall('h0[M"]', paint_page(report))) == 2
    assert "the limit" in paint_page(report)
    assert "<details>" in paint_page(report)


def test_the_least_important_part_goes_first_and_is_named():
    parts = [
        Section("One", [Labeled("one", "1")]),
        Section("Two", [Labeled("two", "2")], rank=1),
        Section("Three", [Labeled("three", "3")], rank=2, name="the third"),
        Section("Last", [Labeled("next", "x")]),
    ]
    report = Sheet(kind="thing", parts=parts)
    short = text_of(report, room=3, terminal=True)

    assert "three" not in short
    assert "left out   two, the third; steptime show -v has all\n" in short
    assert "three" in text_of(report, room=4, terminal=True)
    assert "three" in text_of(report, room=3)  # a file has room


@pytest.mark.parametrize(
    ("text", "told"),
    [("it fits", "It fits"), ("lr=0.1: best", "lr=0.1: best"), ("5 runs", "5 runs"), ("", "")],
)
def test_a_sentence_begins_with_a_capital_and_a_name_keeps_its_letters(text, told):
    assert capitalized(text) == told


def test_what_is_not_known_has_no_paragraph():
    assert labeled(("a", None), ("b", ""), ("c", "d")) == [Labeled("c", "d")]
    assert sections([("A", []), ("B", [Labeled("c", "d")])], pages=["B"]) == [
        Section("B", [Labeled("c", "d"), Blank()], only="page")
    ]


def test_code_that_is_to_be_pasted_is_whole():
    long = "\n".join(f"    line_{number} = " + "x" * 90 for number in range(12))
    console = Console(file=io.StringIO(), width=80, _environ={})
    print_blocks([Code(long, is_whole=True)], console=console)

    assert console.file.getvalue() == "".join(f"  {line}\n" for line in long.splitlines())
    assert "more lines" in text_of(sheet(Code(long)))
