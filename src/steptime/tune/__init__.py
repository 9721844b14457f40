"""Studies: try levers in trials, measure, prove, and write a recipe."""
