"""Runs that are stored: listed, loaded, compared, shown as a page or in another format."""
