"""What the guest knows of each framework that a script may train with: a room each."""
