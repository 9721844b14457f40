"""Records what is compared between whole runs of one script, and makes runs comparable.

In: the plan's `quality`, and what the script computes. Out: `quality-N.jsonl` and `.bin`, which
`verify/` reads. Start with `quality_setup.py`; `quality_watcher.py` notes each update, and
`variants.py` changes seeds, precision and last bits.
"""
