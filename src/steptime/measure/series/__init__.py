"""Makes series over the time of a run, thinned to what a page can show."""
