"""What tells whether a training does what its owner thinks, folded from the record."""
