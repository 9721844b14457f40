"""Checks of samples, orders and splits: functions of digests, indices and labels."""
