"""The commands that try or use remedies: tune, sweep, levers, patch."""
