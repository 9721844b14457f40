"""The wording of machine words, each in one place."""
