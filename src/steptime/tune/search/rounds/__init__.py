"""The rounds of a search: the noise, bundles, single changes, turns of processes, what is left."""
