"""``ptxforge.check``: run kernels under every check and report what is wrong with them, line by line."""
