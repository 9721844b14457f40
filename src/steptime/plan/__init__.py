"""Before there is a run: how much work it is and how much memory it needs, by formulas."""
