"""Levers that free memory for time, or take time for memory back."""
