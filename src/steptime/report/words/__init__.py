"""The wording of machine words, in one place each."""
