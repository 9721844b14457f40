"""Where in the user's code the time goes: frames walked, places kept, whose file it is.

In: the frames that are running at a marker. Out: the lines `s` (sites of a window of updates) and
`a` (places of spans over the whole run). Start with `site_windows.py`, which says when; `frames.py`
walks, and `site_book.py` sorts the time by place.
"""
