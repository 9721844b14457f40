"""A recipe: what was proven to be faster, as a TOML file that people keep beside their script.

`recipe_file` writes and reads it and finds what differs from its proof; `proof_scope` says what a
proof holds for; `recipe_setup` turns a recipe into what a run is started with.
"""
