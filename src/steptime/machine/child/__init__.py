"""The code that measures, in a process of the user's Python: standard library and its torch.

In: a request, one JSON object. Out: lines of JSON on the standard output. It is loaded by file
under a private name, because Steptime may not be installed there. Start with `ceiling_bench.py`;
each other file measures one thing, and `repeat.py` repeats and searches for all of them.
"""
