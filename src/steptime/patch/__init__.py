"""Hands over a recipe as an edit of the user's own files: a diff, a launch line, and the rest.

In: a Recipe and the folder of its command. Out: a `Handover`. Start with `make_patch`; `edits` has
one function for each lever that can be placed, and `check_patch` proves the result in trials.
LibCST reads and writes the source; it is the extra `steptime[patch]`.
"""
