"""What may be claimed: pairs and their statistics, fresh repeats, quality."""
