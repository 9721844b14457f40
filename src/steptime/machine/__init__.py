"""The machine: what it has, what it reaches, and what is wrong with it.

In: the kernel's files, NVML, and the user's Python. Out: an `Inventory`, `Ceilings` and checks.
Start with `inventory.py`, which joins one module for each part; `ceilings.py` asks a process that
measures (`child/`), and `checks/` judges.
"""
