"""The rules, one file a family of ailments."""
