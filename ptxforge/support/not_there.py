"""Names that people look for and do not find, each with the reason: errors and the documentation tell them
from here.

A name is written as people import it: ``tl.target_info``, ``triton.experimental``. An entry stands
for all names below it.
"""

from __future__ import annotations

import attrs


@attrs.frozen(slots=True)
class NotThere:
    """Why there is no such name. ``never``: there will not be; else there may be one day. ``instead`` says
    what does the same, where something does."""

    never: bool
    why: str
    instead: str = ""

    def __str__(self) -> str:
        instead = f"; instead: {self.instead}" if self.instead else ""
        return f"{'never' if self.never else 'not yet'}: {self.why}{instead}"


NOT_THERE: dict[str, NotThere] = {
    "tl.target_info": NotThere(
        False, "a kernel does not ask what it is compiled for", "a constexpr parameter"
    ),
    "tl.slice": NotThere(
        True, "slices are written as Python writes them", "x[:, None], or x[8:16] with compile-time bounds"
    ),
    "tl.async_task": NotThere(
        True, "warps are given their work by the compiler", "tl.range(…, num_stages=…)"
    ),
    "tl.gluon": NotThere(
        True, "layouts and shared memory by hand are Gluon's; ptxforge finds them", "the same in blocks"
    ),
    "tl.tcgen05": NotThere(
        False, "there are no instructions of Blackwell's tensor memory here", "tl.dot, by mma.sync"
    ),
    "tl.syncthreads": NotThere(
        True,
        "barriers between the threads of a program are the compiler's",
        "tl.debug_barrier() where elements talk through global memory",
    ),
    "tl.thread_id": NotThere(
        True, "a program is written for blocks, and threads are the compiler's", "tl.arange(0, BLOCK)"
    ),
    "tl.shared_memory": NotThere(True, "what lies in shared memory, and where, is the compiler's choice"),
    "tl._experimental_make_tensor_descriptor": NotThere(
        True, "Triton took it back", "tl.make_tensor_descriptor"
    ),
    "tl._experimental_descriptor_load": NotThere(True, "Triton took it back", "descriptor.load"),
    "tl._experimental_descriptor_store": NotThere(True, "Triton took it back", "descriptor.store"),
    "triton.experimental": NotThere(
        True,
        "Gluon writes the layouts and the memory of one architecture by hand; ptxforge finds them for each",
        "the same kernel in the language of blocks",
    ),
    "triton.language.extra.hip": NotThere(
        True, "ptxforge makes PTX, for NVIDIA's GPUs; there is nothing for AMD's"
    ),
    "triton.language.extra.tlx": NotThere(
        True, "TLX is an extension of another fork, with barriers and buffers by hand"
    ),
    "triton.language.extra.tcgen05": NotThere(
        False, "there are no instructions of Blackwell's tensor memory here", "tl.dot, by mma.sync"
    ),
    "triton.language.semantic": NotThere(
        True, "it builds Triton's IR; ptxforge's has no builder that Python code calls"
    ),
    "triton.compiler.code_generator": NotThere(True, "it turns Python into Triton's IR, which is not made"),
    "triton.compiler.make_launcher": NotThere(True, "launches need no C that is compiled for a kernel"),
    "triton.backends.nvidia": NotThere(
        True,
        "ptxforge stands in the place of Triton's backend for NVIDIA's GPUs",
        "triton.runtime.driver.active, for the device's facts",
    ),
    "triton.runtime.interpreter": NotThere(
        True, "there is no such interpreter", "PTXFORGE_DEVICE=emulator or PTXFORGE_DEVICE=interpreter"
    ),
    "triton.tools.build_extern": NotThere(True, "no library of bitcode is linked into kernels"),
    "triton.tools.compile": NotThere(
        True,
        "kernels are compiled ahead of time to PTX and machine code, without a launcher in C",
        "python -m ptxforge compile",
    ),
    "triton.tools.link": NotThere(True, "there is no launcher in C to link"),
    "triton.profiler.context": NotThere(True, "the profiler's own state"),
    "triton.profiler.flags": NotThere(True, "the profiler's own state"),
    "triton.profiler.hooks": NotThere(True, "the profiler's own state", "triton.knobs.runtime"),
    "triton.profiler.language": NotThere(
        False, "the profiler looks at launches, not into kernels", "globaltimer() of tl.extra.cuda"
    ),
    "triton.profiler.mode": NotThere(False, "the profiler has one mode: launches timed one by one"),
    "triton.profiler.specs": NotThere(
        False, "the profiler knows no peak rates of GPUs", "python -m ptxforge explain"
    ),
    "triton.profiler.state": NotThere(
        False, "the profiler has scopes, and no state of the whole program", "triton.profiler.scope"
    ),
    "triton._C.libtriton": NotThere(
        True, "there is no C++ behind ptxforge: no MLIR, no LLVM, and so no bindings of them"
    ),
    "triton.tools.experimental_descriptor": NotThere(
        True, "it gave way to triton.tools.tensor_descriptor in Triton 3.4", "triton.tools.tensor_descriptor"
    ),
}


INSIDES = {
    "Triton's own machinery, which ptxforge has no counterpart of": """
        triton.backends.Backend triton.backends.compiler.BaseBackend.* triton.backends.compiler.Language
        triton.backends.driver.Benchmarker triton.backends.driver.GPUDriver.assemble_tensormap_to_arg
        triton.compiler.compiler.ASTSource.parse_options triton.compiler.compiler.AsmDict
        triton.compiler.compiler.CompileTimer triton.compiler.compiler.CompiledKernel.metadata_group
        triton.compiler.compiler.CompiledKernel.module triton.compiler.compiler.IRSource.*
        triton.compiler.compiler.arg_type_pattern triton.compiler.compiler.convert_type_repr
        triton.compiler.compiler.filter_traceback triton.compiler.compiler.max_shared_mem
        triton.compiler.compiler.parse triton.compiler.compiler.prototype_pattern
        triton.compiler.compiler.ptx_arg_type_pattern triton.compiler.compiler.ptx_prototype_pattern
        triton.knobs.env_nvidia_tool.default_path triton.language.core.TRITON_BUILTIN
        triton.language.core.binary_op_type_legalization triton.language.core.check_bit_width
        triton.language.core.is_negative_zero triton.profiler.proton
        triton.profiler.scope.cpu_timed_scope.* triton.profiler.scope.scope.id
        triton.runtime.autotuner.Autotuner.check_disk_cache
        triton.runtime.autotuner.Autotuner.restore_copies triton.runtime.cache.FileCacheManager.lock_path
        triton.runtime.cache.make_so_cache_key triton.runtime.jit.BoundConstexprFunction
        triton.runtime.jit.ConstexprFunction.* triton.runtime.jit.DependenciesFinder
        triton.runtime.jit.GLUON_MODULE triton.runtime.jit.JITFunction.ASTSource
        triton.runtime.jit.JITFunction.CompiledKernel triton.runtime.jit.JITFunction.create_binder
        triton.runtime.jit.JITFunction.kernel triton.runtime.jit.JITFunction.module
        triton.runtime.jit.JITFunction.parse triton.runtime.jit.JITFunction.type
        triton.runtime.jit.JitFunctionInfo triton.runtime.jit.TRITON_MODULE
        triton.runtime.jit.compute_cache_key triton.runtime.jit.convert_to_tuple_if_list
        triton.runtime.jit.create_function_from_signature triton.runtime.jit.get_full_name
        triton.runtime.jit.get_jit_fn_file_line triton.runtime.jit.serialize_specialization_data
        triton.runtime.jit.type_canonicalisation_dict
    """,
    "kernels and functions for compile-time values have no common ancestor": """
        triton.runtime.jit.JITCallable
    """,
    "a kernel's key is its cache_key": """
        triton.runtime.jit.JITFunction.hash triton.compiler.get_cache_key triton.runtime.cache.get_cache_key
    """,
    "warmup is what the kernel and its wrappers have": "triton.runtime.jit.KernelInterface.warmup",
    "the message says where; there is no tree of the source in it": """
        triton.compiler.errors.CompilationError.* triton.compiler.errors.CompileTimeAssertionFailure.*
        triton.compiler.errors.UnsupportedLanguageConstruct.*
    """,
    "what kernels hold are values of ptxforge's own, not objects of these classes": """
        triton.language.core.base_type triton.language.core.base_value triton.language.core.constexpr.type
        triton.language.core.tensor.handle
        triton.language.core.tensor_descriptor.handle triton.language.core.tensor_descriptor_base.handle
        triton.language.core.tensor_descriptor_type.* triton.language.core.tensor_descriptor_base_type.*
        triton.language.core.range.* triton.language.core.static_range.* triton.language.core.condition.*
        triton.language.core.tuple.* triton.language.core.tuple_type.mangle
        triton.language.core.tuple_type.name triton.language.core.constexpr_type.mangle
        triton.language.core.slice triton.language.core.slice_type
    """,
    "types are made into ptxforge's IR": "triton.language.core.dtype.to_ir",
    "asked of a block's or a pointer's type it has no answer in Triton either: ask for the scalar's": """
        triton.language.core.block_type.* triton.language.core.pointer_type.*
    """,
    "max() and min() in kernels are Python's": """
        triton.language.core.builtin_max triton.language.core.builtin_min
    """,
    "no library of bitcode is linked; tl.extra.libdevice has CUDA's functions": """
        triton.language.core.dispatch triton.language.core.extern triton.language.core.extern_elementwise
    """,
    "tl.extra.cuda.convert_custom_float8 converts": """
        triton.language.extra.cuda.utils.convert_float16_to_fp8e4b15
        triton.language.extra.cuda.utils.convert_fp8e4b15_to_float16
    """,
    "there are scopes; no state of the whole program": """
        triton.profiler.enter_state triton.profiler.exit_state
    """,
    "the profiler's trees are not hatchet's frames": """
        triton.profiler.viewer.* triton.profiler.profile.flags triton.profiler.scope.flags
    """,
    "a cache that machines share is a folder that they share": """
        triton.runtime.RedisRemoteCacheBackend triton.runtime.cache.RedisRemoteCacheBackend
        triton.runtime.cache.RemoteCacheManager
    """,
    "python -m ptxforge check finds the wrong accesses": "triton.testing.cuda_memcheck",
    "clocks are the machine's owner's to set": "triton.testing.set_gpu_clock",
    "linear layouts are ptxforge.layouts.LinearLayout": "triton.tools.LinearLayout",
    "get_sass gives nvdisasm's text": "triton.tools.disasm.parseCtrl triton.tools.disasm.processSassLines",
}
"""Names inside of Triton's modules that are not there, by their reason; ``C.*``: other members of ``C``."""


def inside(name: str) -> str | None:
    """Why a module of Triton's, or a class in it, lacks a name; ``None`` when that is not told."""
    parts = name.split(".")
    heads = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    known = {name, *heads, *(f"{head}.*" for head in heads[1:])}
    return next((why for why, names in INSIDES.items() if known & set(names.split())), None)


def reason(name: str) -> NotThere | None:
    """Why there is no ``name``; ``None`` where nothing is known of it.

    >>> str(reason("tl.target_info"))
    'not yet: a kernel does not ask what it is compiled for; instead: a constexpr parameter'
    >>> reason("triton._C.libtriton.ir") is NOT_THERE["triton._C.libtriton"], reason("tl.lode")
    (True, None)
    """
    while name:
        if name in NOT_THERE:
            return NOT_THERE[name]
        name = name.rpartition(".")[0]
    return None
