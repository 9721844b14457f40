"""The integer network: its operators in NumPy, bit for bit what the generated C computes."""
