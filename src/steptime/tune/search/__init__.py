"""Decides which levers are tried, in which order, and what is proven: pure functions of answers.

Start at `search.search`, which reads like the story of a study, and at `bench`, which has the
questions and the answers. `order` says what applies; `bundle` and `turns` try it together, `apart`
and `screen` one by one; `proof` judges and confirms it. They all ask through the `Lab`, which pays
from the budget and remembers every answer; `pairs` has the statistics.
"""
