"""Prints which tests of a run that failed may be tried once more, one a line.

    python scripts/_second_try.py FILE     # pytest's file of what failed last

Those in `tests/second_tries.txt` may; if any other test failed, nothing is printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LISTED = Path(__file__).resolve().parent.parent / "tests" / "second_tries.txt"


def listed(path: Path = LISTED) -> dict[str, str]:
    """Return each test that may fail once, with the reason."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {test: reason for test, _, reason in (line.partition("  ") for line in lines)}


def main() -> None:
    """Print them, and say on stderr which others failed."""
    failed = set(json.loads(Path(sys.argv[1]).read_text()))
    others = failed - listed().keys()
    for test in sorted(others):
        print(f"check: failed, and has no second try: {test}", file=sys.stderr)
    if not others:
        print("\n".join(sorted(failed)))


if __name__ == "__main__":
    main()
