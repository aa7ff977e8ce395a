"""What is measured: gates, search, kernels, and the tuner's own cost."""
