"""What a child leaves: processes, folders, the writes it tried, the end of its output."""
