"""What may vary: knobs, the conditions and guards between them."""
