"""Words of the reports of machines."""
