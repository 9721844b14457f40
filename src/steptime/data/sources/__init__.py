"""Readers of the formats that data of trainings has; `open_source` finds the one that fits."""

from steptime.data.sources.opening import open_source

__all__ = ["open_source"]
