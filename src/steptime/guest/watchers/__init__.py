"""What is sampled beside the steps whenever the recorder writes, and how the process ended."""
