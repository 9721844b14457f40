"""What people and programs read: typed values in, text or one JSON document out."""
