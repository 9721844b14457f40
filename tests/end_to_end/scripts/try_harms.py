"""try_harms.py FOLDER: all of benchmarks/verify/_harms.py in one child of the best tier here.

Prints JSON: the tier, how many attempts there were, and what they changed outside.
"""

import json
import os
import sys
from pathlib import Path

from _outside import HARMS, UNSEEN, Outside

from end_to_end.contained import LIMIT_S, start
from steptime.isolate.probe import probe


def main(folder: Path) -> None:
    within = probe(folder)
    for name in ("outside", "trial"):
        (folder / name).mkdir()
    outside = Outside(folder / "outside")
    try:
        facts = outside.facts(folder / "trial" / "go", stays_s=0.0)
        child = start(folder, sys.executable, HARMS, facts, within=within)
        child.wait(LIMIT_S)
        child.kill()
        changed = outside.changes()
    finally:
        outside.close()
    said = json.loads((folder / "trial" / "stdout").read_text())
    passed = [name for name in UNSEEN if said[name] == "done"]
    found = {
        "tier": within.tier.value,
        "has_own_network": within.has_own_network,
        "lacks": within.lacks,
        "num": len(said),
        "changed": changed + passed,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main(Path(sys.argv[1]))
