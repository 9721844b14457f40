"""The commands on one run: measure, look into, compare, export."""
