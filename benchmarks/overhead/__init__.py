"""What the tuner itself costs, in time and memory."""
