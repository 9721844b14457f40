"""The values of tuning: the study with its trials, how far it is, and the recipe.

Start at `study_values`, which has the `Study`. Whoever renders or stores these values needs
nothing else of `tune`.
"""
