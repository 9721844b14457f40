"""Judges whether a model may ship: metrics of several teams, their ladder, isolation, erosion."""
