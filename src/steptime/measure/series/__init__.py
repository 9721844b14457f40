"""A run over time, thinned to what a page can show."""
