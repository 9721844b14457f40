"""From the record of a run to its Measurement: the lines of each rank, folded once."""
