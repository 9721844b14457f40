"""The magics of a notebook: `%load_ext steptime`, `%%steptime` around a cell that trains.

In: IPython's shell. Out: the run of one cell, as `steptime run` makes one of a command, and its
report inline. `magics.py` speaks with IPython, and `observed_cell.py` observes the cell: the guest
comes into the kernel for as long as the cell runs (`guest/late.py`), and a process beside it
samples the machine. Nothing here imports torch, and IPython is there when it is used.
"""
