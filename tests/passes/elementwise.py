"""Elementwise kernels in IR text, for any element types."""

from __future__ import annotations


def elementwise(*elements: str) -> str:
    """Loads of every element type but the last, their sum as f32, stored as the last."""
    lines = ["%r = make_range {start = 0, end = 1024} : tensor<1024xi32>"]
    total = None
    for i, element in enumerate(elements[:-1]):
        lines.append(f"%s{i} = splat %a{i} : (ptr<{element}>) -> tensor<1024xptr<{element}>>")
        lines.append(f"%p{i} = addptr %s{i}, %r : tensor<1024xptr<{element}>>")
        lines.append(f"%v{i} = load %p{i} : (tensor<1024xptr<{element}>>) -> tensor<1024x{element}>")
        value = f"%v{i}"
        if element != "f32":
            lines.append(f"%w{i} = extf %v{i} : (tensor<1024x{element}>) -> tensor<1024xf32>")
            value = f"%w{i}"
        if total is not None:
            lines.append(f"%t{i} = addf {total}, {value} : tensor<1024xf32>")
            value = f"%t{i}"
        total = value
    out = elements[-1]
    if out != "f32":
        lines.append(f"%n = truncf {total} : (tensor<1024xf32>) -> tensor<1024x{out}>")
        total = "%n"
    lines.append(f"%so = splat %out : (ptr<{out}>) -> tensor<1024xptr<{out}>>")
    lines.append(f"%po = addptr %so, %r : tensor<1024xptr<{out}>>")
    lines.append(f"store %po, {total} : (tensor<1024xptr<{out}>>, tensor<1024x{out}>)")
    return "\n".join(lines)


def pointers(*elements: str) -> str:
    names = [f"%a{i}: ptr<{e}> {{divisibility = 16}}" for i, e in enumerate(elements[:-1])]
    return ", ".join([*names, f"%out: ptr<{elements[-1]}> {{divisibility = 16}}"])
