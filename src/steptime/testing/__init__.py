"""Test tools of Steptime, for people who write their own levers."""
