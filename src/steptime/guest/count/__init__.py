"""The work of a step: operators seen under a dispatch mode, and their formulas."""
