"""Where in the user's code the time goes: frames are walked in two short windows of updates."""
