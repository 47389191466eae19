"""Random attention: scores of a block of queries and blocks of keys, by which values are weighed, in a loop
or in two (the masked blocks in a second one), with any mask, bias, number of heads in a program, lengths that
are multiples or not, fed by pointers, block pointers and descriptors; and sums over the blocks as linear
attention has them.

Results are compared with a tolerance.
"""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer, numpy_type

TOLERANCE = 0.02


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Attention(seed).program()


class _Attention(Writer):
    def __init__(self, seed: int):
        super().__init__(seed, 79)
        self.warps, self.stages = self.pick((1, 2, 4, 4, 4, 8)), self.pick((1, 2, 2, 3, 4))
        self.m, self.n, self.d = (
            self.pick((16, 32, 64, 64)),
            self.pick((16, 32, 32, 64)),
            self.pick((16, 16, 32, 64)),
        )
        self.is_hopper = self.chance(0.65)  # what ``wgmma`` takes, as a rule in several steps
        if self.is_hopper:
            self.warps, self.stages = self.pick((4, 8)), self.pick((2, 2, 3, 4))
            self.m, self.n, self.d = 16 * self.warps, self.pick((16, 32, 64)), self.pick((16, 32, 64, 64))
        self.kind = self.pick(("float16", "float16", "float16", "bfloat16"))
        self.queries = self.pick((1, 1, 2)) * self.m - self.pick((0, 0, 5))
        steps = self.pick((1, 2, 3, 4, 5) if self.is_hopper else (0, 1, 2, 3, 4))
        self.keys = max(1, steps * self.n - self.pick((0, 0, 0, 3, 8)))
        self.is_causal = self.chance(0.5)
        self.heads = self.pick((1, 1, 2))
        self.inner_heads = self.heads if self.chance(0.3) else 1
        self.blocks = -(-self.queries // self.m)
        self.grid = self.blocks * self.heads // self.inner_heads
        self.feed = self.pick(
            ("pointers", "pointers", "pointers", "block", "descriptor", "descriptor", "paged")
        )
        self.how = self.pick(("online", "online", "online", "online", "linear", "plain"))

    def program(self) -> LaunchedProgram:
        self.emit(f"block, head = tl.program_id(0) % {self.blocks}, tl.program_id(0) // {self.blocks}")
        self.emit(f"i, j, d = tl.arange(0, {self.m}), tl.arange(0, {self.n}), tl.arange(0, {self.d})")
        self.emit(f"p = block * {self.m} + i")
        self.L, self.S = self.number("L", self.keys), self.number("S", self.queries)
        self.q, self.k, self.v = (self.tensor(size) for size in (self.queries, self.keys, self.keys))
        self.out = self.keep("o", np.zeros(self.heads * self.queries * self.d, np.float32))
        if self.inner_heads > 1:
            self.emit(f"for head in tl.range(0, {self.heads}{self.advice(0.2)}):")
            self.indent += 1
        self.head()
        target = "sm_90a" if self.is_hopper else self.pick(("sm_90a", "sm_90a", "sm_80"))
        ctas = self.pick((1, 1, 1, 1, 2)) if target == "sm_90a" else 1
        return self.finish("attention", target, ctas, tolerance=TOLERANCE)

    def tensor(self, size: int) -> str:
        data = self.rng.integers(-8, 9, self.heads * size * self.d) / 8
        return self.keep("x", data.astype(numpy_type(self.kind)))

    def advice(self, share: float = 0.35) -> str:
        parts = [
            (share, f"num_stages={self.pick((0, 1, 2, 3, 4))}"),
            (share + 0.3 * self.is_hopper, "warp_specialize=True"),
            (0.08, f"loop_unroll_factor={self.pick((2, 3))}"), (0.08, "disallow_acc_multi_buffer=True"),
            (0.08, "flatten=True"),
        ]  # fmt: skip
        return "".join(f", {text}" for chance, text in parts if self.chance(chance))

    # -- a head ----------------------------------------------------------------------------------------

    def head(self) -> None:
        self.emit(
            f"at = (head * {self.queries} + p)[:, None] * {self.d} + d[None, :]",
            f"q = tl.load({self.q} + at, mask=(p < {self.S})[:, None], other=0)",
        )
        if self.chance(0.4):
            self.emit(f"q = (q * {self.pick((0.25, 0.5))}).to(tl.{self.kind})")
        self.prepare()
        self.emit(f"acc = tl.zeros(({self.m}, {self.d}), tl.float32)")
        least = "-1e30" if self.is_causal else self.pick(("-1e30", "float('-inf')"))
        self.emit(f"most = tl.full(({self.m},), {least}, tl.float32)")
        self.emit(f"total = tl.full(({self.m},), {self.pick((0.0, 1.0))}, tl.float32)")
        self.bias = self.array("x", self.heads, "float32", 2) if self.chance(0.25) else ""
        self.softcap, self.base = self.chance(0.1), self.pick(("exp2", "exp2", "exp"))
        self.loops()
        value = "acc" if self.how == "linear" else "acc / tl.where(total == 0, 1.0, total)[:, None]"
        self.emit(f"acc = {value}")
        if self.chance(0.2):
            out = self.keep("o", np.zeros(self.heads * self.queries, np.float32))
            self.emit(
                "total = tl.where(total == 0, 0.0, tl.log2(total))",
                f"tl.store({out} + head * {self.queries} + p, total, mask=p < {self.S})",
            )
        if self.chance(0.4):
            self.emit(f"acc = acc.to(tl.{self.kind}).to(tl.float32)")
        self.emit(f"tl.store({self.out} + at, acc, mask=(p < {self.S})[:, None])")

    def prepare(self) -> None:
        stride = self.number("H", self.keys * self.d)
        base = [f"{x} + head * {stride}" for x in (self.k, self.v)]
        self.is_turned = self.chance(0.5)
        if self.feed == "block":
            form = f"({self.L}, {self.d}), ({self.d}, 1), (0, 0), ({self.n}, {self.d}), (1, 0)"
            turned = f"({self.d}, {self.L}), (1, {self.d}), (0, 0), ({self.d}, {self.n}), (0, 1)"
            self.emit(
                f"kp = tl.make_block_ptr({base[0]}, {turned if self.is_turned else form})",
                f"vp = tl.make_block_ptr({base[1]}, {form})",
            )
        elif self.feed == "descriptor":
            form = f"({self.L}, {self.d}), ({self.d}, 1), ({self.n}, {self.d})"
            self.emit(
                f"kp = tl.make_tensor_descriptor({base[0]}, {form})",
                f"vp = tl.make_tensor_descriptor({base[1]}, {form})",
            )
        elif self.feed == "paged":
            pages = -(-self.keys // self.n)
            table = self.keep(
                "x", self.rng.integers(0, max(1, self.keys // self.n), max(1, pages)).astype(np.int32)
            )
            self.emit(f"kp, vp, table = {base[0]}, {base[1]}, {table}")
        else:
            self.emit(f"kp, vp = {base[0]}, {base[1]}")

    def tiles(self, is_whole: bool) -> tuple[str, str]:
        """The expressions of a block's keys, transposed, and its values."""
        if self.feed == "block":
            k, v = (
                f"tl.load({x}, boundary_check=({axis},), padding_option='zero')"
                for x, axis in (("kp", int(self.is_turned)), ("vp", 0))
            )
            return (k if self.is_turned else f"tl.trans({k})"), v
        if self.feed == "descriptor":
            return "tl.trans(kp.load([s, 0]))", "vp.load([s, 0])"
        row = "(s + j)"
        if self.feed == "paged":
            self.emit(f"page = tl.load(table + s // {self.n})")
            row = f"(page * {self.n} + j)"
        k = (
            f"kp + {row}[None, :] * {self.d} + d[:, None]"
            if self.is_turned
            else f"kp + {row}[:, None] * {self.d} + d[None, :]"
        )
        key = ("[None, :]" if self.is_turned else "[:, None]"), "[:, None]"
        masks = ["" if is_whole else f", mask=({row} < {self.L}){one}, other=0.0" for one in key]
        k, v = f"tl.load({k}{masks[0]})", f"tl.load(vp + {row}[:, None] * {self.d} + d[None, :]{masks[1]})"
        return (k if self.is_turned else f"tl.trans({k})"), v

    def loops(self) -> None:
        end = self.L
        if self.is_causal:
            self.emit(f"end = tl.minimum((block + 1) * {self.m}, {self.L})")
            end = "end"
        if self.is_causal and self.chance(0.5) or self.chance(0.2):
            first = (
                f"tl.minimum(block * {self.m}, {self.L}) // {self.n} * {self.n}"
                if self.is_causal
                else f"{self.L} // {self.n} * {self.n}"
            )
            self.emit(f"middle = {first}")
            self.loop("0", "middle", False)
            self.loop("middle", end, True)
        else:
            self.loop("0", end, True)

    def loop(self, first: str, end: str, is_masked: bool) -> None:
        self.emit(f"for s in tl.range({first}, {end}, {self.n}{self.advice()}):")
        self.indent += 1
        if self.chance(0.3):
            self.emit(f"s = tl.multiple_of(s, {self.n})")
        k, v = self.tiles(not is_masked and self.feed == "pointers")
        self.emit(f"k = {k}")
        late = self.chance(0.5)
        if not late:
            self.emit(f"v = {v}")
        self.emit(f"w = tl.dot(q, k){self.pick(('', ' * 0.5', ' * 1.4426950408889634'))}")
        if self.bias:
            self.emit(f"w += tl.load({self.bias} + head) * ((s + j)[None, :] - p[:, None]) * 0.125")
        if self.softcap:
            self.emit("w = 4.0 * tl.math.tanh(w * 0.25)")
        self.mask(is_masked)
        if self.how == "linear":
            self.emit("w = tl.where(keep, w, 0.0)")
        if late:
            self.emit(f"v = {v}")
        self.weigh()
        if self.feed == "block":
            self.emit(
                f"kp = tl.advance(kp, {(0, self.n) if self.is_turned else (self.n, 0)})",
                f"vp = tl.advance(vp, ({self.n}, 0))",
            )
        self.indent -= 1

    def mask(self, is_masked: bool) -> None:
        text = f"((s + j)[None, :] < {self.L})"
        if self.is_causal:
            text = self.pick(
                (f"{text} & ((s + j)[None, :] <= p[:, None])", f"(p[:, None] >= (s + j)[None, :]) & {text}")
            )
        if self.chance(0.15):
            text += " & ((s + j)[None, :] + 40 > p[:, None])"
        if is_masked:
            self.emit(f"keep = {text}")
            if self.how != "linear":
                self.emit(self.pick(("w = tl.where(keep, w, -1e30)", "w += tl.where(keep, 0.0, -1e30)")))
        elif self.how == "linear":
            self.emit(f"keep = {text}")

    def weigh(self) -> None:
        """Values by weights, added to what is there."""
        kind, power = self.kind, f"tl.math.{self.base}"
        if self.how == "linear":
            self.emit(f"acc = tl.dot(w.to(tl.{kind}), v, acc)", "total += tl.sum(tl.abs(w), 1)")
        elif self.how == "plain":
            self.emit(
                f"w = {power}(tl.minimum(w, 8.0) - 8.0)",
                "total += tl.sum(w, 1)",
                f"acc += tl.dot(w.to(tl.{kind}), v)",
            )
        else:
            self.emit(
                "more = tl.maximum(most, tl.max(w, 1))",
                f"w = {power}(w - more[:, None])",
                f"scale = {power}(most - more)",
            )
            lines = ["total = total * scale + tl.sum(w, 1)", "acc = acc * scale[:, None]"]
            self.emit(*(lines if self.chance(0.5) else lines[::-1]))
            self.emit(
                f"acc = tl.dot(w.to(tl.{kind}), v, acc)"
                if self.chance(0.7)
                else f"acc += tl.dot(w.to(tl.{kind}), v)"
            )
            self.emit("most = more")
