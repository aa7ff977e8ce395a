"""What counts as better: decode rate, canaries, quality, parity."""
