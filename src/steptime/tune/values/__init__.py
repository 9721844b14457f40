"""The values of a study: trials, verdicts, progress, and the recipe."""
