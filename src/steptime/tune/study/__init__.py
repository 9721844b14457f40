"""Keeps a study on disk and says how far it is.

`study_folder` makes a folder, finds it again by the key of `study_key`, and locks it.
`recorded_answers` writes each answer down before the search sees it, so that a study resumes where
it was cut off. `progress_teller` turns what happens into `StudyProgress` values.
"""
