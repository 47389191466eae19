"""Floor 6: what a compiled kernel is made of and what limits it, as text and as a page.

``trace.py`` compiles and keeps the IR after every pass with its source lines; ``memory.py`` and
``resources.py`` ask it questions; ``roofline.py`` adds what the emulator counts, what products need and what
a machine makes of all that; ``report.py`` gives advice by source line and prints all of it; ``page.py`` makes
one HTML page, with pictures.
"""
