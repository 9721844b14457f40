"""Feeds a training: the order of an epoch, its split over ranks, reading ahead, resuming."""
