"""Finds levers that make one command's training faster, and proves that it trains as well.

Start at `run_study`: options in, a `Study` out. `search/` decides what to try next and is a pure
function of the answers it gets. `trials/` gets the answers from real, contained processes.
`study/` keeps a study on disk, resumes it, and says how far it is. `recipe/` writes down what was
proven and sets up a run with it. `values/` holds what all of them share.
"""
