"""contain.py TIER FOLDER COMMAND...: starts a contained child, prints its launcher's pid, waits."""

import sys
from pathlib import Path

from end_to_end.contained import require, start
from steptime.isolate.tiers import Tier

if __name__ == "__main__":
    tier, folder, *command = sys.argv[1:]
    child = start(Path(folder), *command, within=require(Tier(tier)))
    print(child.pid, flush=True)
    child.wait(600)
