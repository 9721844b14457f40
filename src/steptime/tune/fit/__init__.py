"""Makes a training fit into a memory limit.

`run_fit.py` runs it; `fit_search.py` decides what is tried, as a function of a `FitBench`;
`held_parts.py` says who holds the peak, `measures.py` what would free some of it and at what cost,
`choose.py` which of these together are the cheapest that should fit.
"""
