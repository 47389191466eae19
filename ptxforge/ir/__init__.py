"""Floor 2: the IR. Objects (``core``), types, the declaration of operations, text,
verification, rewriting."""
