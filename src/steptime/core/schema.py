"""The versions of what Steptime writes: its stored files, and the document that programs read."""

from __future__ import annotations

SCHEMA = 1
"""Version of every file in a run folder and in the store."""

DOCUMENT_SCHEMA = 2
"""Version of the document that `--json` writes."""
