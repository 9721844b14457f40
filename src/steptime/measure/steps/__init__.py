"""From rows to steps: rounds of updates, the steady window, and its phases."""
