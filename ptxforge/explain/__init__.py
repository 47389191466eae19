"""Floor 6: what a compiled kernel is made of and what limits it, as text and as a page.

``trace.py`` compiles and keeps the IR after every pass with its source lines; ``memory.py``, ``loops.py``
and ``resources.py`` ask it questions; ``lint.py`` turns the answers into advice by source line;
``roofline.py`` adds what the emulator counts, what products need and what a machine makes of all that;
``report.py`` prints all of it; ``page.py`` makes one HTML page, with pictures.
"""
