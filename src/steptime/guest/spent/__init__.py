"""Which lines of the script take the time of its steps, from stacks that a thread samples.

Start with `stack_sampler.py`, which says when; `line_book.py` sorts what was seen by line. Out: the
line `sl`. Nothing of the user's is called, and no frame is kept.
"""
