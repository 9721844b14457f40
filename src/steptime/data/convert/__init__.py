"""Converts data to a form that costs little to read: predicts, writes, resumes, checks."""
