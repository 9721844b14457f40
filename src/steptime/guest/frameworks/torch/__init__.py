"""What knows torch: its hooks, and the device clock."""
