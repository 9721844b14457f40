"""Compares two sets of runs, A and B: is B slower, by how much, and how sure is that?

Start at `judge`, whose one function is `compare`. `facts` takes from a measured run what a
comparison needs, with the `traits` it was made with; `alike` says which runs may be compared and
what was changed between them; `spread` knows how much equal runs differ.
"""
