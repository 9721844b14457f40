"""`python -m steptime`."""

import sys

from steptime.cli.main import main

sys.exit(main())
