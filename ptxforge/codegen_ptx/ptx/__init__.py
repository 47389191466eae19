"""PTX instructions: what they are made of, how they are collected, and what happens to them before they are
text (the rows of ``pipeline.py``)."""
