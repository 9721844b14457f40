"""One reader for each format, or its library behind one."""
