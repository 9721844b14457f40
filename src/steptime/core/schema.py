"""The version of every file that Steptime writes."""

from __future__ import annotations

SCHEMA = 1
"""Version of every file in a run folder and of the JSON envelope."""
