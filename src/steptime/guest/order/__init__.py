"""In a child of `steptime data check`: which samples the script's own loaders hand out, in order.

Such a child is thrown away: its epochs are cut short, and it ends as soon as enough was seen.
"""
