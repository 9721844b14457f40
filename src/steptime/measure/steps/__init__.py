"""Makes steps of rows: rounds of updates, the steady window, and its phases."""
