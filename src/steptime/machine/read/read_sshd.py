"""Reads the configuration of the SSH server, as far as this user may.

In: the kernel's files. Out: an `Sshd`, or why there is none.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

from steptime.machine._files import KernelFiles, read_text
from steptime.machine.values.check_facts import Sshd
from steptime.record.numbers_told import whole_number_in

_MAX_DEPTH = 16  # for files that include each other


def read_sshd(kernel: KernelFiles, *, home: Path | None = None) -> Sshd | str:
    """Return what the server's configuration says of passwords, or why it cannot be read."""
    file = kernel.root / "etc" / "ssh" / "sshd_config"
    try:
        text = file.read_text(errors="replace")
    except FileNotFoundError:
        return "no_file"
    except OSError:
        return "no_right_to_read"
    values: dict[str, str] = {}
    try:
        has_drop_ins = _read_settings(text, kernel, values)
    except OSError:
        return "no_right_to_read"
    except ValueError:  # no server would read this either
        return "not_told"
    word = values.get("passwordauthentication")
    told = {"yes": True, "no": False}.get(word or "")
    keyboard = values.get(
        "kbdinteractiveauthentication", values.get("challengeresponseauthentication")
    )
    if told is False and keyboard == "yes" and values.get("usepam") == "yes":
        told = True  # then PAM asks for the password
    port = whole_number_in(values.get("port"))
    return Sshd(
        file=f"/{file.relative_to(kernel.root)}",
        has_drop_ins=has_drop_ins,
        port=22 if port is None else port,
        passwords=told,
        has_own_key=_has_key(home),
    )


def _has_key(home: Path | None) -> bool:
    """Return whether this user has a key with which to log in."""
    with suppress(RuntimeError):  # no home is known
        folder = (home or Path.home()) / ".ssh"
        return bool(read_text(folder / "authorized_keys"))
    return False


def _read_settings(
    text: str, kernel: KernelFiles, values: dict[str, str], *, depth: int = 0
) -> bool:
    """Fill in each setting's first value, which counts; those after a Match apply to some only."""
    has_include = False
    for line in text.splitlines():
        words = shlex.split(line.replace("=", " ", 1), comments=True) if _is_plain(line) else []
        if len(words) < 2:
            continue
        word = words[0].lower()
        if word == "match":
            break
        if word == "include" and depth < _MAX_DEPTH:
            has_include = True
            for pattern in words[1:]:
                path = pattern if pattern.startswith("/") else f"/etc/ssh/{pattern}"
                for included in sorted(kernel.root.glob(path.lstrip("/"))):
                    _read_settings(
                        included.read_text(errors="replace"), kernel, values, depth=depth + 1
                    )
        else:
            values.setdefault(word, words[1].lower())
    return has_include


def _is_plain(line: str) -> bool:
    """Return whether the line's quotes are closed."""
    return line.count('"') % 2 == 0 and line.count("'") % 2 == 0
