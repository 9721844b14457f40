"""What the store keeps, of every kind: found, listed, removed."""
