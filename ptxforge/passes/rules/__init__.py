"""Rewrite rules of the canonicalizer, by family of operations. The first line of each rule's docstring is the
rule."""
