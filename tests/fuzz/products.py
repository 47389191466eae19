"""Random products of all element types: operands loaded under masks that are bounds of rectangles or not,
rows taken modulo their number, batches, transposed, both from one array, unpacked from 4 bits, scaled by
group, computed; sums that begin with what is loaded, are scaled, reset or left alone in an iteration;
loops of all kinds; and behind them what kernels do with a sum: activations, halves, casts, reductions,
layouts, atomics, stores by pointers, block pointers and descriptors, another product.

Floats are small integers, so that all executors agree to the last bit.
"""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer, numpy_type

TYPES = (
    "float16", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "float32", "float32", "uint8",
)  # fmt: skip
DEQUANTISED = ("int4", "int8", "groups", "fp8")
"""How an operand may be stored: two numbers in a byte, a byte, one with a scale by group, an 8-bit float."""


HOPPER = (64, 16, 4), (64, 32, 4), (64, 64, 4), (64, 128, 4), (128, 64, 8), (128, 32, 8), (128, 128, 4)
"""Rows, columns and warps of products that ``wgmma`` takes."""


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Products(seed).program()


class _Products(Writer):
    def __init__(self, seed: int):
        super().__init__(seed, 78)
        self.warps = self.pick((1, 2, 4, 4, 4, 8))
        self.stages = self.pick((1, 2, 3, 3, 4))
        self.m, self.n = self.pick((16, 32, 64, 64, 64, 128)), self.pick((8, 16, 32, 32, 64, 128))
        self.k = self.pick((16, 32, 32, 64))
        self.is_hopper = self.chance(0.6)
        if self.is_hopper:
            self.m, self.n, self.warps = self.pick(HOPPER)
            self.stages, self.k = self.pick((2, 3, 3, 4)), self.pick((32, 64, 64))
        self.kind = self.pick(TYPES)
        if self.kind != "float16" and self.kind != "bfloat16":
            self.k = max(self.k, 32)
        self.result = "int32" if self.kind in ("int8", "uint8") else "float32"
        self.down, self.steps, self.batches = (
            self.pick((1, 1, 2)),
            self.pick((0, 1, 2, 3, 4, 2, 3) if self.is_hopper else (0, 1, 2, 3, 4)),
            self.pick((1, 1, 1, 2)),
        )
        self.depth = max(1, self.steps * self.k - self.pick((0, 0, 0, 1, 8, 16)))
        self.rows = self.down * self.m - self.pick((0, 0, 1, 7, 8))
        self.columns = max(1, self.n - self.pick((0, 0, 0, 1, 5)))
        self.grid = self.down * self.batches
        self.is_one_array = False

    def program(self) -> LaunchedProgram:
        self.emit(f"pid, batch = tl.program_id(0) % {self.down}, tl.program_id(0) // {self.down}")
        self.emit(f"i, j, k = tl.arange(0, {self.m}), tl.arange(0, {self.n}), tl.arange(0, {self.k})")
        self.emit(f"p = pid * {self.m} + i")
        sizes = {"M": self.rows, "N": self.columns, "K": self.depth if self.steps else 0}
        self.M, self.N, self.K = (self.number(*size) for size in sizes.items())
        self.left = _Operand(self, "p", self.rows, self.M, self.m, True)
        self.right = _Operand(self, "j", self.columns, self.N, self.n, False)
        if self.left.can_be_one_with(self.right) and self.chance(0.15):
            self.right.name, self.right.width, self.right.high = (
                self.left.name,
                self.left.width,
                self.left.high,
            )
            self.right.is_turned = self.left.is_turned
        self.begin()
        self.loop()
        self.leave()
        target = "sm_90a" if self.is_hopper else self.pick(("sm_90a", "sm_90a", "sm_80", "sm_120"))
        if "float8" in self.kind and target == "sm_80":
            target = "sm_89"
        ctas = self.pick((1, 1, 1, 1, 2)) if target == "sm_90a" else 1
        return self.finish("product", target, ctas, has_steps=self.steps > 0)

    def begin(self) -> None:
        """The sum as it is before the loop."""
        shape, kind = f"({self.m}, {self.n})", self.result
        how = self.pick(("zeros", "zeros", "zeros", "full", "loaded", "rows", "range"))
        if how == "loaded":
            x = self.array("x", self.m * self.n, kind, 3)
            self.emit(f"acc = tl.load({x} + i[:, None] * {self.n} + j[None, :])")
        elif how == "rows":
            x = self.array("x", self.n, self.pick(("float16", "float32", "int8")), 3)
            self.emit(f"acc = tl.broadcast_to(tl.load({x} + j)[None, :], {shape}).to(tl.{kind})")
        elif how == "range":
            self.emit(f"acc = (i[:, None] - j[None, :]).to(tl.{kind})")
        else:
            self.emit(f"acc = tl.full({shape}, {0 if how == 'zeros' else 3}, tl.{kind})")

    # -- the loop --------------------------------------------------------------------------------------

    def advice(self) -> str:
        stages, specialized = (0.2, 0.45) if self.is_hopper else (0.35, 0.2)
        parts = [
            (stages, f"num_stages={self.pick((0, 1, 2, 3, 4))}"), (specialized, "warp_specialize=True"),
            (0.1, "flatten=True"),
            (0.1, f"loop_unroll_factor={self.pick((2, 3))}"), (0.1, "disallow_acc_multi_buffer=True"),
        ]  # fmt: skip
        return "".join(f", {text}" for share, text in parts if self.chance(share))

    def loop(self) -> None:
        how = self.pick(("for", "for", "for", "count", "while", "twice", "once", "pointers", "pointers"))
        self.moves = how == "pointers"
        for operand in (self.left, self.right):
            operand.prepare(self.moves)
        end = f"tl.cdiv({self.K}, {self.k})"
        if how == "once":
            self.emit("s = 0")
            return self.step()
        if how == "while":
            self.emit("s = 0", f"while s < {self.K}:")
        elif how in ("count", "pointers"):
            self.emit(f"for c in tl.range(0, {end}{self.advice()}):", f"    s = c * {self.k}")
        elif how == "twice":
            self.emit(f"for u in tl.range(0, {self.pick((1, 2))}{self.advice()}):")
            self.indent += 1
            self.emit(f"for s in tl.range(0, {self.K}, {self.k}{self.advice()}):")
        else:
            self.emit(f"for s in tl.range(0, {self.K}, {self.k}{self.advice()}):")
        self.indent += 1
        self.step()
        if how == "while":
            self.emit(f"s += {self.k}")
        self.indent -= 2 if how == "twice" else 1

    def step(self) -> None:
        left, right = self.left.tile(), self.right.tile()
        more = ""
        if self.kind == "float32":
            more = self.pick(
                (", input_precision='tf32'", ", input_precision='ieee'", "", ", allow_tf32=True",
                 ", input_precision='tf32x3'")
            )
        if "float8" in self.kind:
            more = self.pick(("", "", ", max_num_imprecise_acc=32", ", max_num_imprecise_acc=0"))
        product = f"tl.dot({left}, {right}{more})"
        inside = f"tl.dot({left}, {right}, acc{more})"
        how = self.pick(
            (
                "acc",
                "acc",
                "acc",
                "acc",
                "plus",
                "plus",
                "scaled",
                "minus",
                "alpha",
                "branch",
                "reset",
                "break",
            )
        )
        x = self.result if how == "scaled" else ""
        if how == "acc":
            self.emit(f"acc = {inside}")
        elif how == "plus":
            self.emit(f"acc += {product}")
        elif how == "minus":
            self.emit(f"acc = acc - {product}")
        elif how == "scaled":
            scales = self.array("x", self.columns * 8, "int8", 2)
            scale = (
                f"tl.load({scales} + s // {self.k} * {self.columns} + j, mask=j < {self.N}, other=0)[None, :]"
            )
            self.emit(f"acc += {product} * {scale}.to(tl.{x})")
        elif how == "alpha":
            self.emit(f"acc = acc * {self.pick(('-1', '(s % 3 - 1)'))}", f"acc = {inside}")
        elif how == "branch":
            self.emit(f"if s // {self.k} % 2 == {self.pick((0, 1))}:", f"    acc = {inside}")
        elif how == "reset":
            self.emit(f"acc = tl.where(s == {self.k}, 0, acc).to(tl.{self.result})", f"acc = {inside}")
        else:
            self.emit(f"acc = {inside}")
            if self.lines[-1].startswith("        ") and self.chance(0.7):
                self.emit(f"if s >= {self.k}:", "    break")
        for operand in (self.left, self.right):
            operand.move()

    # -- what becomes of the sum -----------------------------------------------------------------------

    def leave(self) -> None:
        self.shape = (self.m, self.n)
        for _ in range(self.pick((0, 1, 1, 2))):
            self.pick(
                (
                    self.bias,
                    self.activation,
                    self.halves,
                    self.rounded,
                    self.turned,
                    self.normalised,
                    self.chained,
                )
            )()
        if self.chance(0.2):
            self.sums()
        self.store()

    def bias(self) -> None:
        axis = self.pick((0, 1))
        x = self.array("x", self.shape[axis], self.pick(("float16", "float32", "int8")), 3)
        key = ("[:, None]", "[None, :]")[axis]
        self.emit(f"acc += tl.load({x} + tl.arange(0, {self.shape[axis]})){key}.to(acc.dtype)")

    def activation(self) -> None:
        text = self.pick(
            ("tl.maximum(acc, 0)", "tl.where(acc > 0, acc, acc * 2)", "acc * 2 + 1", "tl.abs(acc)")
        )
        self.emit(f"acc = ({text}).to(tl.{self.result})")

    def halves(self) -> None:
        if self.shape[1] < 16:
            return
        half = (self.shape[0], self.shape[1] // 2)
        form = f"tl.reshape(acc, ({half[0]}, {half[1]}, 2))"
        if self.chance(0.5):
            form = f"tl.permute(tl.reshape(acc, ({half[0]}, 2, {half[1]})), (0, 2, 1))"
        self.emit(f"one, other = tl.split({form})", f"acc = one {self.pick(('+', '-'))} other")
        if self.chance(0.3):
            self.emit("acc = tl.interleave(acc, acc)")
        else:
            self.shape = half

    def rounded(self) -> None:
        kind = self.pick(("float16", "bfloat16", "float8e4nv", "float8e5", "int8"))
        most = 8 if "8e" in kind else 100
        self.emit(f"acc = tl.minimum(tl.maximum(acc, -{most}), {most}).to(tl.{self.result})")
        if kind.startswith("f") or kind.startswith("b"):
            self.emit(f"acc = acc.to(tl.float32).to(tl.{kind}).to(tl.float32).to(tl.{self.result})")
        else:
            self.emit(f"acc = acc.to(tl.{kind}).to(tl.{self.result})")

    def turned(self) -> None:
        self.emit("acc = tl.trans(acc)")
        self.shape = self.shape[::-1]

    def normalised(self) -> None:
        axis = self.pick((0, 1))
        key = ("[None, :]", "[:, None]")[axis]
        self.emit(f"acc = acc - tl.{self.pick(('max', 'min', 'sum'))}(acc, {axis}){key}")

    def chained(self) -> None:
        """Another product, of the sum as 16-bit floats."""
        rows, depth = self.shape
        if depth < 16 or depth * rows > 4096:
            return
        n = self.pick((16, 32, 64))
        x = self.array("x", depth * n, "float16", 1)
        self.emit("left = tl.minimum(tl.maximum(acc, -2), 2).to(tl.float16)")
        right = f"tl.load({x} + tl.arange(0, {depth})[:, None] * {n} + tl.arange(0, {n})[None, :])"
        self.emit(f"acc = tl.dot(left, {right}).to(tl.{self.result})")
        self.shape = (rows, n)

    def sums(self) -> None:
        axis = self.pick((0, 1))
        left = self.shape[1 - axis]
        out = self.keep("o", np.zeros(self.grid * left, self.result))
        self.emit(
            f"total = tl.{self.pick(('sum', 'max'))}(acc, {axis})",
            f"tl.store({out} + tl.program_id(0) * {left} + tl.arange(0, {left}), total)",
        )

    def store(self) -> None:
        (rows, columns), how = (
            self.shape,
            self.pick(
                ("pointers", "pointers", "pointers", "block", "descriptor", "descriptor", "atomic", "columns")
            ),
        )
        kind = self.result
        if how in ("pointers", "descriptor", "block", "columns") and self.chance(0.5):
            kind = self.pick(("float16", "bfloat16", "int16")) if kind == "float32" else "int16"
            self.emit(f"acc = tl.minimum(tl.maximum(acc, -100), 100).to(tl.{kind})")
        size = numpy_type(kind).itemsize
        if how == "descriptor" and columns * size < 16:
            how = "pointers"
        if kind == "int16" and how == "descriptor":
            how = "block"
        high = self.grid * rows
        wide = max(1, columns - self.pick((0, 0, 1, 3, 8)))
        if how == "descriptor":
            wide = -(-wide * size // 16) * 16 // size
        out = self.keep("o", np.zeros(high * wide, numpy_type(kind)))
        top, form = f"tl.program_id(0) * {rows}", f"{out}, ({high}, {wide}), ({wide}, 1)"
        if how == "block":
            self.emit(
                f"box = tl.make_block_ptr({form}, ({top}, 0), ({rows}, {columns}), (1, 0))",
                "tl.store(box, acc, boundary_check=(0, 1))",
            )
        elif how == "descriptor":
            if self.chance(0.3) and kind != "bfloat16":
                self.emit(
                    f"tl.make_tensor_descriptor({form}, ({rows}, {columns})).atomic_add([{top}, 0], acc)"
                )
            else:
                self.emit(f"tl.make_tensor_descriptor({form}, ({rows}, {columns})).store([{top}, 0], acc)")
        else:
            self.emit(f"q, z = {top} + tl.arange(0, {rows}), tl.arange(0, {columns})")
            place = (
                f"z[None, :] * {high} + q[:, None]"
                if how == "columns"
                else f"q[:, None] * {wide} + z[None, :]"
            )
            mask = f"(q[:, None] < {high}) & (z[None, :] < {wide})"
            what = "atomic_add" if how == "atomic" else "store"
            self.emit(f"tl.{what}({out} + {place}, acc, mask={mask})")


class _Operand:
    """One side of the product: an array of ``rows`` by the depth (B's rows are its columns), or the other way
    round if ``is_turned``; a batch behind the other."""

    def __init__(self, g: _Products, row: str, rows: int, bound: str, box: int, is_left: bool):
        self.g, self.row, self.rows, self.bound, self.box, self.is_left = g, row, rows, bound, box, is_left
        self.stored = ""
        if g.kind in ("float16", "bfloat16") and g.chance(0.2 if g.is_hopper else 0.35):
            self.stored = g.pick(DEQUANTISED)
        only_along = g.is_hopper and g.kind not in ("float16", "bfloat16")
        self.is_turned = self.stored not in ("int4", "groups") and g.chance(0.1 if only_along else 0.4)
        self.is_plain = g.is_hopper and g.chance(0.7)  # what TMA copies
        depth = -(-g.depth // 2) * 2 if self.stored == "int4" else g.depth
        depth = -(-depth // 16) * 16 if self.is_plain or g.chance(0.7) else depth
        self.width = rows if self.is_turned else depth
        if self.is_turned and (self.is_plain or g.chance(0.7)):
            self.width = -(-rows // 16) * 16
        self.high = depth if self.is_turned else rows
        self.count = self.high * self.width * g.batches
        kind = {"int4": "uint8", "int8": "int8", "groups": "uint8", "fp8": "float8_e4m3fn"}.get(
            self.stored, g.kind
        )
        if self.stored in ("int4", "groups"):
            data = g.rng.integers(0, 256 if self.stored == "int4" else 4, self.count).astype(np.uint8)
        else:
            low = 0 if kind == "uint8" else -1
            data = g.rng.integers(low, 2, self.count).astype(numpy_type(kind))
        self.name = g.keep("x", data)
        self.by = g.pick(("pointers", "pointers", "block", "descriptor"))
        size = numpy_type(kind).itemsize
        box_width = (self.box if self.is_turned else g.k) * size
        if self.stored == "int4" or (self.by == "descriptor" and (self.width * size % 16 or box_width < 16)):
            self.by = "pointers"
        self.pointer = ""

    def can_be_one_with(self, other: _Operand) -> bool:
        return (
            not self.stored
            and not other.stored
            and self.by == other.by == "pointers"
            and self.rows >= other.rows
        )

    def start(self) -> str:
        """Where the batch begins."""
        return f"{self.name} + batch * {self.high * self.width}" if self.g.batches > 1 else self.name

    def prepare(self, moves: bool) -> None:
        """What stands in front of the loop."""
        g = self.g
        low, high = ("0", self.place()) if self.is_turned else (self.place(), "0")
        sizes = (g.K, self.bound) if self.is_turned else (self.bound, g.K)
        box = (g.k, self.box) if self.is_turned else (self.box, g.k)
        sizes = tuple(f"tl.maximum({size}, 1)" if size == g.K else size for size in sizes)
        form = f"{self.start()}, ({sizes[0]}, {sizes[1]}), ({self.width}, 1)"
        if self.by == "block":
            self.pointer = g.let(f"tl.make_block_ptr({form}, ({low}, {high}), {box}, (1, 0))", "f")
        elif self.by == "descriptor":
            self.pointer = g.let(f"tl.make_tensor_descriptor({form}, {box})", "f")
        elif moves:
            self.pointer = g.let(f"{self.start()} + {self.offsets('k')}", "f")

    def place(self) -> str:
        return f"pid * {self.box}" if self.is_left else "0"

    def offsets(self, depth: str) -> str:
        row, wrap = self.row, self.g.pick(("", "", f" % {self.bound}"))
        self.is_wrapped = bool(wrap)
        self.depth_key, self.row_key = (
            ("[None, :]", "[:, None]") if self.is_left else ("[:, None]", "[None, :]")
        )
        if self.stored == "int4":
            self.packed = self.g.k // 2
            depth = depth.replace("s", "s // 2").replace("k", f"tl.arange(0, {self.packed})")
            return f"({row}{wrap}){self.row_key} * {self.width // 2} + ({depth}){self.depth_key}"
        if self.is_turned:
            return f"({depth}){self.depth_key} * {self.width} + ({row}{wrap}){self.row_key}"
        return f"({row}{wrap}){self.row_key} * {self.width} + ({depth}){self.depth_key}"

    def tile(self) -> str:
        """A variable with the operand of this iteration."""
        g = self.g
        if self.by == "block":
            text = f"tl.load({self.pointer}, boundary_check=(0, 1), padding_option='zero')"
        elif self.by == "descriptor":
            text = (
                f"{self.pointer}.load([{f's, {self.place()}' if self.is_turned else f'{self.place()}, s'}])"
            )
        else:
            place = self.pointer or f"{self.start()} + {self.offsets('(s + k)')}"
            other = 0 if self.is_plain else g.pick((0, 0, 0, 1))
            text = f"tl.load({place}, mask={self.mask()}, other={other})"
        if self.by != "pointers" and self.is_turned == self.is_left:
            text = f"tl.trans({text})"
        name = g.let(text, "l")
        return self.computed(name)

    def mask(self) -> str:
        g = self.g
        along = (
            f"s // 2 + tl.arange(0, {self.packed}) < ({g.K} + 1) // 2"
            if self.stored == "int4"
            else f"s + k < {g.K}"
        )
        along = f"({along}){self.depth_key}"
        if self.is_wrapped:
            return along
        rows = f"({self.row} < {self.bound}){self.row_key}"
        return g.pick((f"{along} & {rows}", f"{rows} & {along}"))

    def computed(self, name: str) -> str:
        """The operand of what was loaded."""
        g = self.g
        if self.stored == "int4":
            g.emit(f"low, high = ({name} & 15).to(tl.int8) - 8, ({name} >> 4).to(tl.int8) - 8")
            if self.is_left:
                name = g.let(f"tl.reshape(tl.join(low, high), ({self.box}, {g.k}))", "l")
            else:
                name = g.let(
                    f"tl.trans(tl.reshape(tl.join(tl.trans(low), tl.trans(high)), ({self.box}, {g.k})))", "l"
                )
            return g.let(f"{name}.to(tl.{g.kind})", "l")
        if self.stored == "groups":
            scales = g.array("x", self.rows * 8, g.kind, 1)
            place = f"(s // {g.k}) * {self.rows} + {self.row}"
            key = "[:, None]" if self.is_left else "[None, :]"
            scale = g.let(f"tl.load({scales} + {place}, mask={self.row} < {self.bound}, other=0){key}", "l")
            return g.let(f"({name}.to(tl.{g.kind}) - 2) * {scale}", "l")
        if self.stored:
            return g.let(f"{name}.to(tl.{g.kind})", "l")
        if g.kind in ("float16", "bfloat16", "float32") and g.chance(0.05 if self.is_plain else 0.15):
            return g.let(
                g.pick(
                    (
                        f"{name} * 2",
                        f"-{name}",
                        f"tl.abs({name})",
                        f"tl.where({name} > 0, {name}, 0).to(tl.{g.kind})",
                    )
                ),
                "l",
            )
        return name

    def move(self) -> None:
        g = self.g
        if self.by == "block":
            g.emit(f"{self.pointer} = tl.advance({self.pointer}, {(g.k, 0) if self.is_turned else (0, g.k)})")
        elif self.by == "pointers" and self.pointer:
            step = g.k * self.width if self.is_turned else g.k // 2 if self.stored == "int4" else g.k
            g.emit(f"{self.pointer} += {step}")
