"""Terminal reports: lines on a page of known width."""
