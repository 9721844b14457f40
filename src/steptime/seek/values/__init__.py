"""The values of a search: what is asked, its runs, and its answer."""
