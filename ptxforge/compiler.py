"""Source → artifact: runs the stages in order and keeps what they made.

    Python function → frontend → tile IR → passes → gpu IR → codegen_ptx → PTX text

:func:`compile_function` is the whole road for one specialisation; it needs no device. Errors in the kernel's
source are :class:`~ptxforge.support.errors.CompilationError` with the line and a caret.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import attrs

from ptxforge.support import container, descriptor, dtypes, markup, programs, tensor_map
from ptxforge.support.container import described
from ptxforge.support.errors import (
    ArgumentError,
    CompilationError,
    OutOfResourcesError,
    PtxforgeError,
    ValueArgumentError,
)
from ptxforge.support.machine import MAX_WARPS, WARP_SIZE
from ptxforge.support.promises import Promise
from ptxforge.support.target import DEFAULT_TARGET, Target, parse_target
from ptxforge.support.tensor_map import TensorMapRecipe

if TYPE_CHECKING:
    from ptxforge.ir.core import BlockArgument, Function
    from ptxforge.support.remarks import Remark


@functools.cache
def _stage(name: str) -> ModuleType:
    """A stage's package, loaded at the first compilation: a process that finds its kernels in the disk cache,
    or only imports a module of kernels, needs none of them (0.2 s)."""
    return importlib.import_module(f"ptxforge.{name}")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collections meanwhile. All that a compilation makes is alive until its end, and each
    collection would walk it, and what the user's program holds as well (up to half a GEMM's time, and more
    beside a large program)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


TRITON_STAGES = {"source": "tile", "ttir": "tile", "ttgir": "gpu"}
"""What stands for the IR that Triton calls so."""

ABSENT_STAGES = {
    "llir": "ptxforge has no LLVM: the IR called 'gpu' becomes PTX in one step",
    "llvmir": "ptxforge has no LLVM: the IR called 'gpu' becomes PTX in one step",
    "amdgcn": "ptxforge makes PTX, for NVIDIA's GPUs",
    "hsaco": "ptxforge makes PTX, for NVIDIA's GPUs",
}
_MACHINE_CODE = ("cubin", "sass")


class NoSuchTextError(PtxforgeError, KeyError):
    """A kernel has no text of that name."""

    def __init__(self, key: object, known: tuple[str, ...]):
        why = f" ({ABSENT_STAGES[key]})" if key in ABSENT_STAGES else ""
        names = ", ".join(map(repr, known))
        super().__init__(f"there is no text {key!r} of a kernel{why}; there are {names}")

    __str__ = Exception.__str__  # a KeyError would show the repr


class Assembly(Mapping[str, Any]):
    """Texts of a kernel by stage, each made when first asked for.

    ``makers`` gives for each key (``tile``, ``gpu``, ``ptx``, …) its text or a function that makes it.
    Triton's ``ttir`` and ``ttgir`` mean ``tile`` and ``gpu``. Pickled, it has all its texts, and machine
    code if that was made. Another key raises :class:`NoSuchTextError`.
    """

    listed_as: ClassVar[Mapping[str, str]] = {}
    """The keys that iterating gives in place of others; nothing where that is empty."""

    def __init__(self, makers: dict[str, Any]):
        self._makers = makers

    @overload
    def __getitem__(self, key: Literal["cubin"]) -> bytes: ...

    @overload
    def __getitem__(
        self, key: Literal["tile", "gpu", "ptx", "sass", "source", "ttir", "ttgir"]
    ) -> str: ...

    @overload
    def __getitem__(self, key: str) -> Any: ...

    def __getitem__(self, key: str) -> Any:
        name = TRITON_STAGES.get(key, key)
        if name not in self._makers:
            raise NoSuchTextError(key, tuple(self._makers))
        made = self._makers[name]
        if callable(made):
            made = self._makers[name] = made()
        return made

    def __repr__(self) -> str:
        return f"<Assembly: {', '.join(self._makers)}>"

    def __contains__(self, key: object) -> bool:
        return TRITON_STAGES.get(key, key) in self._makers

    def __iter__(self) -> Iterator[str]:
        return filter(None, (self.listed_as.get(name, name) for name in self._makers))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def with_machine_code(self, cubin: Callable[[], bytes], sass: Callable[[bytes], str]) -> Assembly:
        """The same texts, the bytes ``cubin`` (by the function of that name, if they are not here yet) and
        the text ``sass`` made of them; each made when asked for."""
        makers: dict[str, Any] = {name: (lambda name=name: self[name]) for name in self._makers}
        makers.setdefault("cubin", cubin)
        complete = type(self)(makers | {"sass": lambda: sass(complete["cubin"])})
        return complete

    def __reduce__(self) -> tuple:
        kept = [key for key in self._makers if key not in _MACHINE_CODE or not callable(self._makers[key])]
        return Assembly, ({key: self[key] for key in kept},)


@attrs.define(slots=True, eq=False)
class Artifact:
    """A compiled kernel that no device has seen yet.

    ``parameters`` lists (name, signature type) in the order of the PTX parameters: constants are gone.
    ``shared_bytes`` is dynamic shared memory per block. ``asm`` has the texts ``tile`` (IR before the gpu
    passes), ``gpu`` (after them) and ``ptx``; ``stages`` the IR after every pass. ``timings`` are seconds by
    part. ``written`` names the parameters through which the kernel may write memory. ``tensor_maps`` tells
    how to make the parameters of type ``tensormap`` from the others, ``promises`` what launches check of
    arguments. ``extra_warps`` are those of a block beside the ``num_warps`` that the source knows: they copy
    for these (``warp_specialize``). ``most_programs`` is for how many programs along the first axis of the
    grid it was compiled, 0: for any number. ``assembled`` are remarks on what the assembler makes of it, or a
    function of the artifact that asks for them.
    """

    name: str
    ptx: str
    target: str
    num_warps: int
    num_stages: int
    num_ctas: int
    shared_bytes: int
    parameters: tuple[tuple[str, str], ...]
    signature: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, Any]
    timings: dict[str, float]
    asm: Assembly
    _stages: Any = attrs.field(repr=False)
    written: tuple[str, ...] = ()
    tensor_maps: tuple[TensorMapRecipe, ...] = ()
    extra_warps: int = 0
    promises: tuple[Promise, ...] = ()
    most_programs: int = 0
    _remarks: Any = attrs.field(default=(), repr=False)
    assembled: Any = attrs.field(default=(), repr=False)

    @property
    def threads(self) -> int:
        """Threads of a block: a launch must have just as many."""
        return WARP_SIZE * (self.num_warps + self.extra_warps)

    def __repr__(self) -> str:
        what = f"{self.num_warps} warps, {self.shared_bytes} bytes of shared memory"
        return f"<Artifact {self.name} for {self.target}, {what}>"

    def _repr_html_(self) -> str:
        """For notebooks: the facts, remarks, and the texts folded away."""
        facts = [
            ("kernel", self.name), ("target", self.target), ("warps", self.num_warps),
            ("stages", self.num_stages), ("shared memory", f"{self.shared_bytes} bytes"),
            ("parameters", ", ".join(f"{name}: {kind}" for name, kind in self.parameters)),
            ("constants", ", ".join(f"{name}={value}" for name, value in self.constants.items())),
        ]  # fmt: skip
        texts = [markup.folded(name, markup.code(self.asm[name])) for name in ("tile", "gpu", "ptx")]
        remarks = "".join(markup.code(str(remark)) for remark in self.remarks)
        return markup.table(facts) + remarks + "".join(texts)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in attrs.fields(Artifact)} | {
            "_stages": self.stages, "_remarks": self.decisions
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def packed(self, machine_code: bool = False) -> bytes:
        """The bytes that :meth:`save` writes."""
        facts, sections = described(self)
        facts["constants"] = {
            name: value
            for name, value in self.constants.items()
            if value is None or isinstance(value, (bool, int, float, str))
        }
        if machine_code:
            sections["cubin"] = self.asm["cubin"]
        return container.pack("saved kernel", facts, sections)

    def save(self, path: str | os.PathLike, machine_code: bool = False) -> None:
        """Write the kernel to a file that :func:`ptxforge.load` reads: PTX, parameters, what a launch needs,
        and with ``machine_code`` also that (made now, if it was not). Raises ``OSError``, and
        :class:`DeviceError` when there is no assembler to make it."""
        container.write(path, self.packed(machine_code))

    @property
    def stages(self) -> list[tuple[str, str]]:
        """``(pass name, IR text after it)`` for the frontend and every pass, in order."""
        if callable(self._stages):
            self._stages = self._stages()
        return self._stages

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What the compiler did not do that would make the kernel faster, and why, each with its source
        line; and what the assembler did, where there is one: it is asked once."""
        if callable(self.assembled):
            self.assembled = self.assembled(self)
        return (*self.decisions, *self.assembled)

    @property
    def decisions(self) -> tuple[Remark, ...]:
        """The :attr:`remarks` of the compiler alone."""
        if callable(self._remarks):
            self._remarks = self._remarks()
        return self._remarks


OPTIONS: dict[str, Any] = {
    "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "debug": False, "enable_fp_fusion": True,
    "sanitize_overflow": True, "enable_reflect_ftz": True, "line_info": True, "tensor_maps": True,
    "persistent": True, "any_grid": False,
}  # fmt: skip
"""Compile options and their defaults (Triton's, but for :data:`OWN_OPTIONS`)."""
OWN_OPTIONS = ("line_info", "tensor_maps", "persistent", "any_grid")


def plain_option(name: str, value: Any) -> Any:
    """The value of an option as an integer or a boolean, see :func:`plain`. Options that are none of the
    compiler's are on or off. Raises :class:`ArgumentError` for what is neither."""
    return plain(name, value, bool if isinstance(OPTIONS.get(name, False), bool) else int)


def plain(name: str, value: Any, kind: type) -> Any:
    """The integer or boolean that ``value`` equals, of whatever type it is: numpy's, a float, an array
    without dimensions. (A warm launch finds by comparison what was prepared, so that ``4.0`` has to mean
    what ``4`` does.)

    Raises :class:`ArgumentError` for another value of the option ``name``.
    """
    try:
        number = value.item() if is_array_of_one(value) else value
        found = kind(getattr(number, "real", number))
        if found == number and hash(found) == hash(number):
            return found
    except Exception:  # whatever int, a comparison and hash raise for what is no number
        pass
    raise ArgumentError(f"must be {'True or False' if kind is bool else 'an integer'}, is {value!r}", name)


def is_array_of_one(value: Any) -> bool:
    """Whether a value is an array without dimensions, of numpy's or torch's, which may change."""
    return getattr(value, "shape", None) == () and hasattr(value, "__setitem__")


def _plain_options(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value if value is None else plain_option(name, value) for name, value in given.items()}


def check_options(given: dict[str, Any], target: Target) -> None:
    """Raise :class:`ArgumentError` for a number that an option cannot be, and :class:`OutOfResourcesError`
    for more warps than a block has, which an autotuner passes over."""
    num_warps, num_stages, num_ctas = given["num_warps"], given["num_stages"], given["num_ctas"]
    maxnreg = given["maxnreg"]
    if num_warps < 1 or num_warps & (num_warps - 1):
        raise ValueArgumentError(f"must be a power of two from 1 to 32, is {num_warps!r}", "num_warps")
    if num_warps > MAX_WARPS:
        threads, most = num_warps * WARP_SIZE, MAX_WARPS * WARP_SIZE
        raise OutOfResourcesError("threads", threads, most, hint="use fewer num_warps")
    if num_stages < 0:
        raise ArgumentError(f"must be a non-negative integer, is {num_stages!r}", "num_stages")
    if num_ctas not in (1, 2, 4, 8):
        raise ArgumentError(f"must be 1, 2, 4 or 8, is {num_ctas!r}", "num_ctas")
    if num_ctas > 1 and not target.has_cluster:
        raise ValueArgumentError(f"must be 1, is {num_ctas!r}: {target} has no clusters", "num_ctas")
    if maxnreg is not None and not 16 <= maxnreg <= 255:
        raise ArgumentError(f"must be from 16 to 255, is {maxnreg!r}", "maxnreg")


def compile_function(
    fn: Any,
    signature: dict[str, str],
    constants: dict[str, Any],
    target: str = DEFAULT_TARGET,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    num_ctas: int = 1,
    maxnreg: int | None = None,
    debug: bool = False,
    tensor_maps: bool = True,
    persistent: bool = True,
    any_grid: bool = False,
    enable_fp_fusion: bool = True,
    sanitize_overflow: bool = True,
    enable_reflect_ftz: bool = True,
    line_info: bool = True,
    symbol: str = "",
) -> Artifact:
    """Compile ``fn`` for one signature (``{"x": "*fp32:16", "n": "i32"}``) and set of constants.

    Every parameter of ``fn`` is in ``signature`` or in ``constants`` (a constant wins). ``debug`` keeps
    device assertions. With ``tensor_maps`` the kernel may have parameters of its own, behind those of ``fn``,
    which its launcher makes by the recipes in ``Artifact.tensor_maps`` (where the target has TMA). With
    ``persistent`` as well, its programs may walk over tiles: another parameter, and fewer blocks. With
    ``any_grid`` nothing is taken for granted of how many there are (``Artifact.most_programs``). Without
    ``enable_fp_fusion`` the kernel's products and sums are rounded each. ``sanitize_overflow`` makes an
    assertion of what integers of fewer than 64 bits must not do under ``debug``: overflow. Without
    ``enable_reflect_ftz`` ``exp2`` in f32 gives denormals where it else gives 0. Without
    ``line_info`` the PTX does not name lines of the source. ``symbol`` is the kernel's name in PTX, if not
    that of ``fn``.

    Raises:
        ArgumentError: an option has a value that cannot be.
        CompilationError: the target is not known, or the kernel's source is wrong; with the line and a caret.
    """
    machine = parse_target(target)
    options = _plain_options({
        "num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "maxnreg": maxnreg,
        "debug": debug, "enable_fp_fusion": enable_fp_fusion, "sanitize_overflow": sanitize_overflow,
        "enable_reflect_ftz": enable_reflect_ftz, "line_info": line_info,
    })  # fmt: skip
    hidden = _plain_options({"tensor_maps": tensor_maps, "persistent": persistent, "any_grid": any_grid})
    check_options(options, machine)
    with _collector_paused():
        pipeline, codegen_ptx = _stage("passes.pipeline"), _stage("codegen_ptx")
        print_function = _stage("ir.printer").print_function
        start = time.perf_counter()
        function = build_ir(fn, signature, constants, target, **hidden, **options)
        function.name = symbol or function.name
        built = time.perf_counter()
        snapshots = pipeline.run(function, machine, later=codegen_ptx.PASS_NAMES)
        passed = time.perf_counter()
        ptx = codegen_ptx.emit(function, machine)
        emitted = time.perf_counter()
        written = _stage("passes.analysis.roots").written_parameters(function)
    return Artifact(
        name=function.name,
        ptx=ptx, target=target,
        **{name: options[name] for name in ("num_warps", "num_stages", "num_ctas")},
        **_made(function),
        parameters=parameters_of(function, signature),
        promises=tuple(function.promises),
        signature=dict(signature), constants=dict(constants),
        options=options | hidden,
        timings={"frontend": built - start, "passes": passed - built, "codegen": emitted - passed},
        asm=Assembly(
            {"tile": lambda: _last_tile_text(snapshots), "gpu": lambda: print_function(function), "ptx": ptx}
        ),
        remarks=tuple(function.remarks),
        stages=lambda: [(snapshot.name, snapshot.text) for snapshot in snapshots],
        written=written,
    )


def compile_ir(text: str, target: str) -> Artifact:
    """Compile the text of a kernel's IR: tile IR, or gpu IR that the passes have made (it says how much
    shared memory it takes).

    Its options are those in the text. Raises :class:`ParseError` and :class:`VerificationError` for text that
    is no kernel.
    """
    machine = parse_target(target)
    with _collector_paused():
        codegen_ptx, print_function = _stage("codegen_ptx"), _stage("ir.printer").print_function
        function = _stage("ir.parser").parse_function(text)
        _stage("ir.verifier").verify(function)
        signature = {argument.name: _signature_type(argument) for argument in function.arguments}
        is_made = "shared_bytes" in function.attributes
        snapshots = [] if is_made else _stage("passes.pipeline").run(
            function, machine, later=codegen_ptx.PASS_NAMES)
        ptx = codegen_ptx.emit(function, machine)
        tile = text if is_made else _last_tile_text(snapshots)
    options = {name: function.attributes.get(name, default) for name, default in OPTIONS.items()}
    return Artifact(
        name=function.name, ptx=ptx, target=target, num_warps=options["num_warps"],
        num_stages=options["num_stages"], num_ctas=options["num_ctas"],
        parameters=tuple(signature.items()), **_made(function),
        signature=signature, constants={}, options=options, timings={},
        asm=Assembly({"tile": tile, "gpu": print_function(function), "ptx": ptx}),
        stages=[(snapshot.name, snapshot.text) for snapshot in snapshots],
        written=_stage("passes.analysis.roots").written_parameters(function),
    )  # fmt: skip


def _made(function: Function) -> dict[str, Any]:
    """What passes have found for launches."""
    names = ("shared_bytes", "extra_warps", "most_programs")
    found = {name: function.attributes.get(name, 0) for name in names}
    return found | {"tensor_maps": _tensor_maps(function)}


def _signature_type(argument: BlockArgument) -> str:
    """The signature's word for a parameter of the IR; integers there have no sign."""
    if hidden := _hidden_type(argument):
        return hidden
    text = str(argument.type)
    element = re.fullmatch(r"(?:ptr<)?(\w+)>?", text)
    known = {kind.ir: kind.short for kind in reversed(dtypes.ALL)}
    if element is None or element[1] not in known:
        return text
    divisor = argument.attributes.get("divisibility", 1)
    return ("*" if text != element[1] else "") + known[element[1]] + (":16" if divisor % 16 == 0 else "")


def build_ir(
    fn: Any, signature: dict[str, str], constants: dict[str, Any], target: str, *,
    tensor_maps: bool = True, persistent: bool = True, any_grid: bool = False, line_info: bool = True,
    **options: Any,
) -> Function:  # fmt: skip
    """The tile IR that the passes begin with; see :func:`compile_function`.

    Raises what the frontend raises: :class:`CompilationError`.
    """
    function = _stage("frontend").build(fn, signature, constants, target=target, **options)
    if tensor_maps and parse_target(target).has_tma:
        function.attributes["tensor_maps"] = True
        if persistent:
            function.attributes["persistent"] = True
    if any_grid:
        function.attributes["any_grid"] = True
    if not line_info:
        function.attributes["line_info"] = False
    return function


def parameters_of(function: Function, signature: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and types of a function's parameters: those of the source, and those that launchers make."""
    types = dict(signature)
    for name, kind in signature.items():
        if descriptor.is_descriptor(kind):
            types |= dict(descriptor.parse(kind).parameters(name))
    types |= {a.name: kind for a in function.arguments if (kind := _hidden_type(a))}
    return tuple((argument.name, types[argument.name]) for argument in function.arguments)


def _hidden_type(argument: BlockArgument) -> str:
    """The type of a parameter that launchers make, in an artifact's list; empty for those of the source."""
    if _is_tensor_map(argument):
        return tensor_map.TYPE
    return programs.TYPE if argument.attributes.get("programs") else ""


def _is_tensor_map(argument: BlockArgument) -> bool:
    return str(argument.type) == tensor_map.TYPE


def _tensor_maps(function: Function) -> tuple[TensorMapRecipe, ...]:
    return tuple(TensorMapRecipe(a.name, **a.attributes) for a in function.arguments if _is_tensor_map(a))


def _last_tile_text(snapshots: list) -> str:
    """The text after the last tile pass."""
    tile = [snapshot for snapshot in snapshots if snapshot.stage == "tile"]
    if not tile:
        raise CompilationError("the pipeline kept no tile IR")
    return tile[-1].text
