"""From markers to rows: each thread's journal and timeline, and the recorder that writes them.

In: markers that the hooks note, a few numbers each. Out: rows and lines in the rank's file. Start
with `journal.py`, the hot path; `thread_timeline.py` turns its notes into sums by phase, and
`recorder.py` writes them. At run time this room imports no other room of the guest.
"""
