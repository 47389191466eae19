"""IR → IR. `pipeline.py` is the table of passes; each pass is a function in the file of its own name."""
