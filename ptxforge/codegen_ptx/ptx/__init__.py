"""What happens to the list of instructions after lowering: the rows of ``pipeline.py``."""
