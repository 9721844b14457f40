"""Whether a run with levers trains as the run without them did."""
