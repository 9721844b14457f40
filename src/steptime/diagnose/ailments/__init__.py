"""The rules, with one file per family of ailments."""
