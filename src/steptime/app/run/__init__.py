"""One run of a command: started, watched, asked, and described."""
