"""Random boxes of tensors in one dimension to five, by descriptors and block pointers, that begin anywhere,
also in front of their tensor and behind it: loaded in loops, reshaped, multiplied with each other as
convolutions do, gathered, stored, added to memory.
"""

from __future__ import annotations

import attrs
import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer, numpy_type

KINDS = ("int32", "int16", "int8", "int64", "float32", "float16", "bfloat16", "uint8")
LARGEST = 1024
"""Elements of a box of which the program draws the sizes, at most."""


@attrs.frozen
class Box:
    """Boxes of ``sizes`` of the tensor in the array ``name``, by a descriptor or a block pointer ``made``."""

    name: str
    made: str
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    kind: str
    by: str

    @property
    def rank(self) -> int:
        return len(self.sizes)


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Corners(seed).program()


class _Corners(Writer):
    def __init__(self, seed: int):
        super().__init__(seed, 82)
        self.warps, self.stages, self.grid = (
            self.pick((1, 2, 4, 4, 8)),
            self.pick((1, 2, 3, 4)),
            self.pick((1, 2, 3)),
        )

    def program(self) -> LaunchedProgram:
        self.is_hopper = self.chance(0.6)
        if self.is_hopper:
            self.warps, self.stages = self.pick((4, 4, 8)), self.pick((2, 3, 3, 4))
        self.emit("pid = tl.program_id(0)", "k = pid * 0")
        for _ in range(self.pick((1, 2))):
            likely = self.convolution if self.is_hopper else self.sums
            self.pick((self.sums, likely, self.convolution, self.rows))()
        target = "sm_90a" if self.is_hopper else self.pick(("sm_90a", "sm_90a", "sm_80"))
        return self.finish("corner", target, self.pick((1, 1, 1, 2)) if target == "sm_90a" else 1)

    # -- boxes -----------------------------------------------------------------------------------------

    def box(self, rank: int, kind: str, sizes: tuple[int, ...] = (), prefix: str = "x") -> Box:
        """A tensor with boxes of these sizes, or some."""
        item = numpy_type(kind).itemsize
        sizes = sizes or self.sizes(rank)
        by = "descriptor" if rank > 3 or self.chance(0.6) else "block"
        if by == "descriptor" and sizes[-1] * item < 16:
            sizes = (*sizes[:-1], 16 // item)
        shape = [max(1, int(self.rng.integers(1, 2 * size + 2))) for size in sizes]
        if prefix == "o":
            shape[0] = self.grid * sizes[0]
        unit = 16 // item if by == "descriptor" else 1
        strides, stride = [1], -(-shape[-1] // unit) * unit + self.pick((0, 0, unit))
        for size in shape[:0:-1][1:]:
            strides.append(stride)
            stride *= size
        strides = [*([stride] if rank > 1 else []), *strides[::-1]]
        count = sum((size - 1) * step for size, step in zip(shape, strides)) + unit
        data = self.rng.integers(-5 if not kind.startswith("u") else 0, 6, count).astype(numpy_type(kind))
        name = self.keep(prefix, data if prefix == "x" else np.zeros_like(data))
        form = [", ".join(self.number(self.fresh("n"), size) for size in shape)]
        form.append(", ".join([*(self.number(self.fresh("n"), step) for step in strides[:-1]), "1"]))
        made = f"{name}, [{form[0]}], [{form[1]}]"
        return Box(name, made, tuple(shape), sizes, kind, by)

    def sizes(self, rank: int) -> tuple[int, ...]:
        while True:
            sizes = (*(self.pick((1, 1, 2, 4, 8)) for _ in range(rank - 1)), self.pick((8, 16, 32)))
            if np.prod(sizes) <= LARGEST:
                return sizes

    def begins(self, one: Box, unit: int = 1) -> list[str]:
        """Where a box begins along each dimension: anywhere, along the last one at a multiple of ``unit``."""
        found = []
        for axis, (size, side) in enumerate(zip(one.shape, one.sizes)):
            step = unit if axis == one.rank - 1 else 1
            place = int(self.rng.integers(-side, size + 1)) // step * step if self.chance(0.4) else 0
            back = f"k * {side} - {self.pick((0, step, side))}"
            found.append(self.pick((str(place), f"{place} + k * {step}", f"{place} + k * {side}", back)))
        return found

    def tile(self, one: Box, begins: list[str], is_zero: bool = False) -> str:
        """The expression of the box that begins there; what lies outside is 0 if ``is_zero``."""
        if one.by == "descriptor":
            padding = "" if is_zero else self.padding(one)
            made = self.let(f"tl.make_tensor_descriptor({one.made}, {list(one.sizes)}{padding})", "d")
            text = f"{made}.load([{', '.join(begins)}])"
            return self.without_nan(one, text) if padding else text
        order = list(range(one.rank))[::-1]
        made = f"tl.make_block_ptr({one.made}, [{', '.join(begins)}], {list(one.sizes)}, {order})"
        padding = self.pick(("zero", "zero", "nan")) if "float" in one.kind and not is_zero else "zero"
        text = f"tl.load({made}, boundary_check={tuple(range(one.rank))}, padding_option='{padding}')"
        return self.without_nan(one, text) if padding == "nan" else text

    def padding(self, one: Box) -> str:
        return ", padding_option='nan'" if "float" in one.kind and self.chance(0.2) else ""

    def without_nan(self, one: Box, text: str) -> str:
        if "float" not in one.kind:
            return text
        name = self.let(text, "l")
        return f"tl.where({name} == {name}, {name}, 3.0)"

    def loop(self) -> None:
        end = self.number(self.fresh("n"), self.pick((0, 1, 2, 3, 4)))
        stages, specialized = (0.2, 0.5) if self.is_hopper else (0.4, 0.2)
        parts = [(stages, f", num_stages={self.pick((1, 2, 3, 4))}"), (specialized, ", warp_specialize=True")]
        parts.append((0.1, ", loop_unroll_factor=2"))
        advice = "".join(text for share, text in parts if self.chance(share))
        self.emit(f"for k in tl.range(0, {end}{advice}):")
        self.indent += 1

    # -- pieces ----------------------------------------------------------------------------------------

    def sums(self) -> None:
        """Boxes along a walk, added up, and stored or added to memory."""
        rank = self.pick((1, 2, 2, 3, 3, 4, 5))
        one = self.box(rank, self.pick(KINDS))
        acc = self.let(f"tl.full({one.sizes}, 1, tl.int32)", "acc")
        in_loop = self.chance(0.8)
        if in_loop:
            self.loop()
        self.emit(f"{acc} = {acc} * 3 + {self.tile(one, self.begins(one))}.to(tl.int32)")
        if in_loop:
            self.indent -= 1
            self.emit("k = pid * 0")
        self.leave(acc, one.sizes)

    def leave(self, acc: str, sizes: tuple[int, ...]) -> None:
        if len(sizes) > 1 and self.chance(0.3):
            order = [int(n) for n in self.rng.permutation(len(sizes))]
            acc, sizes = self.let(f"tl.permute({acc}, {order})", "acc"), tuple(sizes[n] for n in order)
        if np.prod(sizes) >= 8 and self.chance(0.3):
            last = self.pick([n for n in (8, 16, 32, 64) if np.prod(sizes) % n == 0])
            sizes = (int(np.prod(sizes)) // last, last)
            acc = self.let(f"tl.reshape({acc}, {sizes})", "acc")
        kind = self.pick(("int32", "int32", "float32", "int16", "int64", "float16"))
        if numpy_type(kind).itemsize * sizes[-1] < 16:
            kind = "int64" if sizes[-1] > 1 else "int32"
        out = self.box(len(sizes), kind, sizes, "o")
        if out.sizes != sizes:
            out = attrs.evolve(out, sizes=sizes, by="block")
        value = self.let(f"({acc} & 127).to(tl.{kind})", "r")
        places = [f"pid * {sizes[0]}", *(str(int(self.rng.integers(-side // 2, side))) for side in sizes[1:])]
        if out.by == "block" and len(sizes) < 4:
            order = list(range(len(sizes)))[::-1]
            made = f"tl.make_block_ptr({out.made}, [{', '.join(places)}], {list(sizes)}, {order})"
            self.emit(f"tl.store({made}, {value}, boundary_check={tuple(range(len(sizes)))})")
        elif out.by == "block":
            self.emit(f"tl.store({out.name} + pid, tl.sum(tl.ravel({acc}), 0).to(tl.{kind}))")
        else:
            made = self.let(f"tl.make_tensor_descriptor({out.made}, {list(sizes)})", "d")
            uses = ["store", "store"] + (["atomic_add"] if kind in ("int32", "float32", "float16") else [])
            uses += ["atomic_max", "atomic_min", "atomic_xor", "atomic_or"] if kind == "int32" else []
            self.emit(f"{made}.{self.pick(uses)}([{', '.join(places)}], {value})")

    def convolution(self) -> None:
        """Products of boxes in three or four dimensions, seen as matrices."""
        kind = self.pick(("float16", "float16", "bfloat16", "int8"))
        m, k = self.pick((16, 32, 64, 64)), self.pick((16, 32, 32, 64))
        m = 16 * self.warps if self.is_hopper else m
        k = max(k, 32) if kind == "int8" else k
        high = self.pick([n for n in (1, 2, 4, 8) if m % n == 0])
        left_sizes = self.pick(((high, m // high, k), (1, high, m // high, k), (m, k)))
        n = self.pick((16, 32, 64))
        right_sizes = self.pick(((n, k), (1, n, k), (1, 1, n, k)))
        left, right = (self.box(len(sizes), kind, sizes) for sizes in (left_sizes, right_sizes))
        result = "int32" if kind == "int8" else "float32"
        acc = self.let(f"tl.full(({m}, {n}), {self.pick((0, 2))}, tl.{result})", "acc")
        self.loop()
        unit = 16 if self.is_hopper and self.chance(0.8) else 1
        a = self.let(self.tile(left, self.begins(left, unit), self.is_hopper), "a")
        b = self.let(self.tile(right, self.begins(right, unit), self.is_hopper), "b")
        a, b = f"tl.reshape({a}, ({m}, {k})).to(tl.{kind})", f"tl.reshape({b}, ({n}, {k})).to(tl.{kind})"
        self.emit(f"{acc} = tl.dot({a}, tl.trans({b}), {acc})")
        self.indent -= 1
        self.emit("k = pid * 0")
        out = self.keep("o", np.zeros(self.grid * m * n, result))
        self.emit(f"at = tl.arange(0, {m})[:, None] * {n} + tl.arange(0, {n})[None, :]")
        self.emit(f"tl.store({out} + pid * {m * n} + at, {acc})")

    def rows(self) -> None:
        """Rows that indices name, gathered and scattered."""
        kind = self.pick(("float16", "float32", "int32", "bfloat16"))
        count, width = self.pick((8, 16, 32)), self.pick((16, 32, 64))
        high, wide = int(self.rng.integers(1, 40)), -(-int(self.rng.integers(1, 80)) // 8) * 8
        x = self.array("x", high * wide, kind, 5)
        index = self.keep("x", self.rng.permutation(64)[:count].astype(np.int32) - 4)
        high, form = self.number(self.fresh("n"), high), f"{wide}], [{wide}, 1], [1, {width}]"
        made = self.let(f"tl.make_tensor_descriptor({x}, [{high}, {form})", "d")
        at = self.let(f"tl.load({index} + tl.arange(0, {count}))", "e")
        value = self.let(f"{made}.gather({at}, {self.pick((0, 0, 8, 16, 40))})", "g")
        if self.chance(0.5):
            out = self.keep("o", np.zeros(64 * wide, numpy_type(kind)))
            goal = self.let(f"tl.make_tensor_descriptor({out}, [64, {form})", "d")
            self.emit(f"{goal}.scatter({value}, {at}, {self.pick((0, 0, 8))})")
        out = self.keep("o", np.zeros(count * width, numpy_type(kind)))
        place = f"tl.arange(0, {count})[:, None] * {width} + tl.arange(0, {width})[None, :]"
        self.emit(f"tl.store({out} + {place}, {value})")
