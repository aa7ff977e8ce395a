"""Search methods replayed over tables of outcomes."""
