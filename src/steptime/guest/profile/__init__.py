"""`run --profile`: a few steady steps under torch's profiler or a profiler of the device's maker.

In: the parent's request and the end of each update. Out: a trace file and the line `profile`.
Everything is in `profile_window.py`, which is loaded only where the user asked for a profile.
"""
