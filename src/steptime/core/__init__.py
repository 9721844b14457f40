"""What every other part of Steptime shares: units, statistics, the store, and a few values."""
