"""Layouts: which thread holds which element of a tile, and where a tile lies in shared memory.

`linear.py` opens with the essay: a layout is a matrix of bits. `encodings.py` has the named layouts, and
`syntax.py` their text; everything else is computed from the matrices.
"""
