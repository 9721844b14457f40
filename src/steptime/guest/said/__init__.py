"""What libraries say while a training runs: warnings, and log records at WARNING and above."""
