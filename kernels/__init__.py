"""The same question one level down: an op, its reference, its candidates."""
