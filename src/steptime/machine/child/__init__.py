"""What measures, in a process of the user's Python: the standard library, and its torch.

Loaded by file under a private name, because Steptime may not be installed there. It talks by lines
of JSON on its standard output; `bench` has them.
"""
