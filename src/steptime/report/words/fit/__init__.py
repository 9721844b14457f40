"""Words of the reports of fits and plans."""
