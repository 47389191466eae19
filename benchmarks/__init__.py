"""Benchmarks: ``python -m benchmarks`` on a machine with a GPU."""
