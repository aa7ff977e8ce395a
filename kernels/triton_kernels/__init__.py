"""Triton kernels and their launchers. Imported only when a candidate that needs Triton runs."""
