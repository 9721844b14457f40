"""Values and pure functions that every other part of Steptime stands on."""
