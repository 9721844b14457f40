"""Damages files, values and variables, each time in the same way for the same chance.

In: a `random.Random` and what is to be damaged. Out: the damaged thing, and words that say what was
done. `fuzz.py` gives the damaged things to the commands.
"""

from __future__ import annotations

import json
import os
import random
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPARSE_BYTES = 2 << 30

# Texts of JSON (and of TOML, where it has them) that no reader should fall over.
NUMBERS = (
    *("0", "-1", "1", "-0.0", "0.5", "1e308", "-1e308", "1e-320", "1e400", "NaN", "-Infinity"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 29),
    *("9" * 30, "1" * 5000, "4294967296", "1e99", "253402300800", "1e18", "1e15"),
)
OTHERS = (
    *("null", "true", "false", "[]", "{}", '""', '"²"', '"x"', "[1]", '{"a": 1}', "[null]"),
    *('"\\ud800"', '"\\u0000"', '"\\u001b[31m"', '"/dev/zero"', '"/proc/self/mem"', '"../../.."'),
    *("[[1], [2]]", '[{"pid": []}]', '"nan"', '"1e400"', '["a", 1, null]'),
)
LONG = ('"' + "y" * 100_000 + '"', "[" * 1000 + "]" * 1000, '{"a":' * 1000 + "1" + "}" * 1000)
WORDS = (
    *("", " ", "0", "1", "-1", "2", "²", "١", "1_0", "0x10", "1e3", "nan", "inf", "1" * 5000),
    *("9" * 19, "99999999999", "\x1b[31mred", "a\nb", "\x7f", "é", "\udcff", "/", "/dev/zero"),
    *("/proc/self/mem", "/no/such", "a" * 4000, "a/" * 2000, "..", "~", "%s%n", "$(touch x)", "*"),
    *("[bold]", "--help", "-", ":", ",", ";", "=", "localhost:²", "0,²", "GPU-", "dumb", "xterm"),
)


def pick(chance: random.Random, values: tuple[str, ...]) -> str:
    """Return one of the values."""
    return values[chance.randrange(len(values))]


def any_value(chance: random.Random) -> str:
    """Return the text of a value in JSON."""
    kind = chance.random()
    if kind < 0.45:
        return pick(chance, NUMBERS)
    return pick(chance, OTHERS if kind < 0.95 else LONG)


# -- texts


def _flip(chance: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if found:
            found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def _truncate(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _insert(chance: random.Random, data: bytes) -> bytes:
    junk = (
        b"\0" * 1000,
        b"\xff\xfe",
        b"\n" * 50,
        b"{}",
        b"[" * 100_000,
        b"\x1b[2J",
        b"\r\n",
        b"nul",
    )
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.choice(junk) + data[place:]


def _lines(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    place, what = chance.randrange(len(lines)), chance.randrange(5)
    if what == 0:
        lines[place:place] = [lines[place]] * chance.choice((1, 3, 200))
    elif what == 1:
        del lines[place]
    elif what == 2:
        chance.shuffle(lines)
    elif what == 3:
        lines[place] = lines[chance.randrange(len(lines))]
    else:
        lines.insert(place, any_value(chance).encode("utf-8", "surrogatepass") + b"\n")
    return b"".join(lines)


def _whole(chance: random.Random, data: bytes) -> bytes:
    deep = chance.choice((1000, 100_000))
    return chance.choice(
        (
            b"",
            b"\n",
            b"null",
            b"[]",
            b"{}",
            b"\0" * 4096,
            b"[" * deep,
            b'{"a":' * deep,
            b"\xff" * 64,
        )
    )


def _value_in_json(chance: random.Random, data: bytes) -> bytes:
    """Replace a value of a document, or of a line of several."""
    lines = data.splitlines() if data.count(b"\n") > 1 else [data]
    place = chance.randrange(len(lines)) if lines else 0
    try:
        document = json.loads(lines[place])
    except (ValueError, IndexError, RecursionError):
        return _flip(chance, data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        spots = list(_spots(document))
        if spots:
            holder, key = spots[chance.randrange(len(spots))]
            if chance.random() < 0.1 and isinstance(holder, dict):
                del holder[key]
            else:
                holder[key] = f"@{any_value(chance)}@"
    text = json.dumps(document)
    lines[place] = _opened(text).encode("utf-8", "surrogatepass")
    return b"\n".join(lines) + b"\n"


def _spots(data: Any) -> Any:
    """Yield each place in plain data: what holds it, and its key."""
    of_list = range(len(data)) if isinstance(data, list) else ()
    for key in list(data) if isinstance(data, dict) else of_list:
        yield data, key
        if isinstance(data[key], (dict, list)):
            yield from _spots(data[key])


def _opened(text: str) -> str:
    """Return the text of JSON in which values that were given as text stand as they are."""
    parts = []
    while '"@' in text:
        before, _, rest = text.partition('"@')
        inner, _, text = rest.partition('@"')
        parts += [before, json.loads(f'"{inner}"')]
    return "".join([*parts, text])


def _value_in_toml(chance: random.Random, data: bytes) -> bytes:
    lines = data.decode("utf-8", "replace").splitlines()
    places = [index for index, line in enumerate(lines) if " = " in line]
    if not places:
        return _flip(chance, data)
    place = chance.choice(places)
    name = lines[place].partition(" = ")[0]
    more = ("nan", "inf", "-inf", "1979-05-27", "[" * 1000 + "]" * 1000, "{a = 1}", "0x" + "f" * 40)
    value = chance.choice(more) if chance.random() < 0.4 else any_value(chance)
    lines[place] = f"{name} = {value}"
    if chance.random() < 0.1:
        lines.append("[" + ".".join(["a"] * 1000) + "]")
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


Change = Callable[[random.Random, bytes], bytes]
CHANGES: tuple[Change, ...] = (_flip, _truncate, _insert, _lines, _whole)


def change_text(chance: random.Random, path: Path) -> str:
    """Damage what is in a file."""
    data = path.read_bytes()
    of_values = _value_in_toml if path.suffix == ".toml" else _value_in_json
    change = of_values if chance.random() < 0.6 else chance.choice(CHANGES)
    path.write_bytes(change(chance, data))
    return f"{change.__name__.strip('_')} {path.name}"


# -- what a file is


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(".s")
    os.rename(".s", path.name)  # which may be longer than a socket's may be
    os.chdir(here)


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # zeros without an end
    except PermissionError:
        path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE_BYTES)


def _sparse_head(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b'{"k": "head", "schema": 1, "num_cores": 2}\n')
        file.truncate(SPARSE_BYTES)


def _locked(path: Path) -> None:
    path.write_bytes(b"{}")
    path.chmod(0)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": _fifo,
    "folder": Path.mkdir,
    "socket": _socket,
    "device": _device,
    "sparse": _sparse,
    "sparse_head": _sparse_head,
    "locked": _locked,
    "missing": lambda path: None,
    "link_to_device": lambda path: path.symlink_to("/dev/zero"),
    "link_to_itself": lambda path: path.symlink_to(path.name),
    "link_to_nothing": lambda path: path.symlink_to("nothing"),
    "link_to_folder": lambda path: path.symlink_to("."),
    "link_to_terminal": lambda path: path.symlink_to("/dev/tty"),
    "link_to_memory": lambda path: path.symlink_to("/proc/self/mem"),
}


def change_kind(chance: random.Random, path: Path) -> str:
    """Put something else in the place of a file."""
    name = chance.choice(tuple(KINDS))
    path.unlink()
    KINDS[name](path)
    return f"{name} {path.name}"


# -- names

NAMES = (
    *("rank-².jsonl", "rank-.jsonl", "rank--1.jsonl", "rank-0-².jsonl", "worker-1-².jsonl"),
    *("rank-" + "9" * 200 + ".jsonl", "rank-\x1b[31m.jsonl", "rank-\n.jsonl", "rank-\udcff.jsonl"),
    *(
        "quality-0.jsonl",
        "stalls.jsonl",
        "count.jsonl",
        "source.json",
        "ceilings.json",
        "plan.json",
    ),
    *("measurement-2.json", "diagnosis-2.json", "writes.json", "profile", "shims", ".lock"),
)


def is_small(path: Path) -> bool:
    """Return whether a path is a plain file that can be read and changed."""
    is_plain = path.is_file() and not path.is_symlink() and path.suffix != ".html"
    return is_plain and path.stat().st_size < 1 << 22


def add_file(chance: random.Random, folder: Path) -> str:
    """Add a file that nobody expects: a copy of another one, or something else."""
    path = folder / chance.choice(NAMES)
    if os.path.lexists(path):
        return f"kept {path.name!a}"
    others = [one for one in sorted(folder.iterdir()) if is_small(one)]
    if others and chance.random() < 0.6:
        path.write_bytes(chance.choice(others).read_bytes())
        return f"copy as {path.name!a}"
    name = chance.choice(tuple(KINDS))
    KINDS[name](path)
    return f"{name} as {path.name!a}"


def damage(chance: random.Random, folder: Path) -> list[str]:
    """Damage up to four things in a folder; return what was done."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        plain = [one for one in sorted(folder.rglob("*")) if one.is_file() and not one.is_symlink()]
        small = list(filter(is_small, plain))
        kind = chance.random()
        if small and kind < 0.75:
            done.append(change_text(chance, chance.choice(small)))
        elif plain and kind < 0.92:
            done.append(change_kind(chance, chance.choice(plain)))
        else:
            done.append(add_file(chance, folder))
    return done


def any_word(chance: random.Random) -> str:
    """Return the value of a variable, or an argument; neither may hold a zero byte."""
    if chance.random() < 0.1:
        letters = "".join(map(chr, range(1, 256)))
        return "".join(chance.choice(letters) for _ in range(chance.choice((1, 8, 300))))
    return pick(chance, WORDS)
