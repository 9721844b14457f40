"""Puts parts into one file that needs no network: the page of a run, and that of a study.

In: parts as markup, and scripts. Out: the text of the file. Nothing from the user becomes markup:
each text goes through `html_tags`, and the page's own policy lets only those scripts run whose
hashes it lists.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from steptime.report.html.html_tags import Html, tag


def frame(title: str, parts: Sequence[Html], *, scripts: Sequence[str] = ()) -> str:
    """Return the whole file; `scripts` have passed `script_text`."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(asset("page.css"))),
    )
    body = tag("body", *parts, *(tag("script", Html(script)) for script in scripts))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en').text}\n"


def asset(name: str) -> str:
    """Return the text of a file that comes with the page."""
    return (resources.files("steptime.report") / "assets" / name).read_text(encoding="utf-8")


def script_text(text: str) -> str:
    """Return the script with its text escaped, so that none of it can end the element."""
    return text.replace("\r\n", "\n").replace("</", "<\\/").replace("<!--", "<\\!--")


def _policy(scripts: Sequence[str]) -> str:
    """Return the policy: no address may be reached, only these scripts run, styles are inline."""
    sums = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in sums) or "'none'"
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"
