"""What runs beside a command: samplers of the machine and its devices, and the stall watch.

In: the machine, the command's processes, and the files that its ranks write. Out: lines in
`host.jsonl` and `stalls.jsonl`; nothing is stopped and nothing is printed. Start with `outside.py`,
which joins the samplers, and `stall_watch.py`, which probes processes where no step comes.
"""
