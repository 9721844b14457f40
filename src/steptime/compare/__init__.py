"""Compares two sets of runs, A and B: whether B is slower, by how much, and how sure that is.

Start at `judge` and its function `compare`. `facts` takes from a measured run what a comparison
needs, and `traits` says what the run was made with. `alike` says which runs may be compared and
what changed between them; `spread` knows how much equal runs differ.
"""
