"""What Steptime is tested with, for those who write levers of their own."""
