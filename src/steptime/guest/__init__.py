"""The guest: lives inside each Python process of the user's command and watches.

`inject/site/sitecustomize.py` loads this folder by location once torch has been executed, as a
part of a private package in which it finds `..record` and nothing else of ours. Standard library
only, and the torch the script imported. The guest may lose a sample; it may never break or change
the training.
Clocks and `dumps` are bound as it is loaded, since a script may replace them later.
"""

from __future__ import annotations

from .bootstrap import start

__all__ = ["start"]
