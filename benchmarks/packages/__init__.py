"""Public packages written for Triton, unmodified, on ptxforge and on Triton: results and kernel times."""
