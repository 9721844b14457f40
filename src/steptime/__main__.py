"""`python -m steptime`."""

import sys

from steptime.cli.main import entry

sys.exit(entry())
