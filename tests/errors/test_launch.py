"""Wrong launches: the whole text of each error is in ``launch.txt``
(``--update-golden`` rewrites it; read it then)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.runtime.ragged import create_ragged_descriptor
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from ptxforge.support import dtypes
from ptxforge.support.errors import PtxforgeError

of = TensorDescriptor.from_tensor
HERE = Path(__file__).parent


@ptxforge.jit
def scale(x, out, n, factor: tl.float32, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@ptxforge.jit
def unmasked(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 1.0)


@ptxforge.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, STEP):
        left = tl.load(a + i[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + j[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * N + j[None, :], total)


@ptxforge.jit
def double(x_desc):
    x_desc.store([0], x_desc.load([0]) * 2)


@ptxforge.jit
def rows(x, out, n, stride, times):
    matrix = tl.make_tensor_descriptor(x, [n, 8], [stride * times, 1], [4, 8])
    tl.store(out, tl.sum(matrix.load([0, 0])))


@ptxforge.jit
def typed(n: tl.int32):
    pass


def _array(n: int = 64) -> np.ndarray:
    return np.zeros(n, np.float32)


def _on(name: str) -> ptxforge.DeviceArray:
    device = EmulatorDevice()
    device.name = name
    return ptxforge.to_device(_array(), device)


def _host_array_on_a_gpu():
    gpu = _on("cuda:0")
    scale[(1,)](gpu, _array(), 64, 2.0, BLOCK=64)


def _two_devices():
    scale[(1,)](_on("cuda:0"), _on("cuda:1"), 64, 2.0, BLOCK=64)


def _too_much_shared_memory():
    half = np.zeros((256, 256), np.float16)
    matmul[(1,)](half, half, _array(256 * 256), 256, M=256, N=256, STEP=128, num_stages=4, num_warps=8)


def _part_of_a_cluster():
    """Who launches the PTX by other means counts CTAs."""
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "factor": "fp32"}
    artifact = scale.compile(signature, {"BLOCK": 64}, "sm_90a", num_ctas=2)
    function = EmulatorDevice().load_module(artifact.ptx).function("scale")
    function.launch((3, 1, 1), (128, 1, 1), artifact.shared_bytes, 0, bytes(24))


def _tensor_map(box: tuple[int, ...], **options) -> bytes:
    return EmulatorDevice().encode_tensor_map(dtypes.float16, 4096, (512, 512), (512, 1), box, **options)


CASES = {
    "missing argument": lambda: scale[(1,)](_array(), _array(), 64, BLOCK=64),
    "two missing arguments": lambda: scale[(1,)](_array(), _array(), BLOCK=64),
    "too many arguments": lambda: scale[(1,)](_array(), _array(), 64, 2.0, 64, 5),
    "argument given twice": lambda: scale.run(_array(), _array(), 64, 2.0, 64, n=5, grid=(1,)),
    "unknown option": lambda: scale[(1,)](_array(), _array(), 64, 2.0, BLOCK=64, num_warp=4),
    "misspelled parameter": lambda: scale[(1,)](_array(), _array(), 64, 2.0, BLOK=64),
    "number of warps": lambda: scale[(1,)](_array(), _array(), 64, 2.0, BLOCK=64, num_warps=3),
    "number of ctas": lambda: scale[(1,)](_array(), _array(), 64, 2.0, BLOCK=64, num_ctas=3),
    "ctas on a target that has no clusters": lambda: typed.compile({"n": "i32"}, target="sm_80", num_ctas=2),
    "grid of no whole clusters": _part_of_a_cluster,
    "tensor map with a long box": lambda: _tensor_map((512, 8)),
    "tensor map with a box wider than the swizzle": lambda: _tensor_map((8, 64), swizzle=64),
    "option that is not supported": lambda: scale[(1,)](
        _array(), _array(), 64, 2.0, BLOCK=64, extern_libs='lib.bc'
    ),
    "argument of no known kind": lambda: scale[(1,)]("text", _array(), 64, 2.0, BLOCK=64),
    "element type that kernels do not have": lambda: scale[(1,)](
        np.zeros(4, np.complex64), _array(), 64, 2.0, BLOCK=64
    ),
    "integer beyond 64 bits": lambda: scale[(1,)](_array(), _array(), 1 << 64, 2.0, BLOCK=64),
    "integer beyond its annotation": lambda: typed[(1,)](1 << 31),
    "float for an integer": lambda: typed[(1,)](0.5),
    "float beyond fp32": lambda: scale[(1,)](_array(), _array(), 64, 1e300, BLOCK=64),
    "constant without a hash": lambda: scale[(1,)](_array(), _array(), 64, 2.0, BLOCK=[64]),
    "host array on a gpu": _host_array_on_a_gpu,
    "arrays on two devices": _two_devices,
    "grid with four axes": lambda: scale[(1, 1, 1, 1)](_array(), _array(), 64, 2.0, BLOCK=64),
    "negative grid": lambda: scale[(-1,)](_array(), _array(), 64, 2.0, BLOCK=64),
    "grid of a float": lambda: scale[(1.5,)](_array(), _array(), 64, 2.0, BLOCK=64),
    "no grid": lambda: scale(_array(), _array(), 64, 2.0, BLOCK=64),
    "too much shared memory": _too_much_shared_memory,
    "descriptor of no array": lambda: TensorDescriptor(3, [64], [1], [16]),
    "descriptor with a base that is not aligned": lambda: of(_array()[1:], [16]),
    "descriptor with rows of any length": lambda: TensorDescriptor(_array(), [6, 10], [10, 1], [4, 8]),
    "descriptor of a transposed array": lambda: of(_array().reshape(8, 8).T, [8, 8]),
    "descriptor whose neighbours are apart": lambda: TensorDescriptor(_array(), [4, 8], [16, 2], [4, 8]),
    "descriptor of six dimensions": lambda: of(_array(1).reshape((1,) * 6), [1] * 6),
    "descriptor with one stride for two sizes": lambda: TensorDescriptor(_array(), [8, 8], [1], [8, 8]),
    "descriptor with one side for two sizes": lambda: TensorDescriptor(_array(), [8, 8], [8, 1], [8]),
    "descriptor without elements": lambda: TensorDescriptor(_array(), [0, 8], [8, 1], [8, 8]),
    "descriptor of integers with nan": lambda: of(
        np.zeros(64, np.int32), [16], padding="nan"
    ),
    "descriptor with an unknown padding": lambda: of(_array(), [16], padding="wrap"),
    "descriptor that rounds": lambda: of(_array(), [16], round_f32_to_tf32=True),
    "descriptor with an empty box": lambda: double[(1,)](of(_array(), [0])),
    "descriptor with a narrow box": lambda: double[(1,)](of(_array(), [2])),
    "descriptor with a box of no power of two": lambda: double[(1,)](
        of(_array(), [24])
    ),
    "descriptor of a read-only array": lambda: double[(1,)](
        of(np.broadcast_to(_array(), (64,)), [64])
    ),
    "descriptor type of a narrow box": lambda: double.compile({"x_desc": "tensordesc<fp16[4]>"}),
    "descriptor type that is none": lambda: double.compile({"x_desc": "tensordesc<fp17[64]>"}),
    "descriptor in a kernel with a base that is not aligned": lambda: rows[(1,)](
        _array()[1:], _array(), 4, 16, 1
    ),
    "descriptor in a kernel with rows of any length": lambda: rows[(1,)](_array(), _array(), 4, 10, 1),
    "descriptor in a kernel with rows of a length that is computed": lambda: rows[(1,)](
        _array(), _array(), 4, 5, 2
    ),
    "ragged descriptor along the last dimension": lambda: create_ragged_descriptor(
        _array().reshape(8, 8), [8, 8], ragged_dim=-1
    ),
    "ragged descriptor of four dimensions": lambda: create_ragged_descriptor(
        _array().reshape(1, 1, 8, 8), [1, 1, 8, 8]
    ),
    "array too small": lambda: unmasked[(1,)](_array(32), BLOCK=64),
}


def _text_of(case) -> str:
    with ptxforge.use_device(EmulatorDevice()), pytest.raises(PtxforgeError) as caught:
        case()
    text = str(caught.value).replace(str(HERE.parents[1]) + "/", "")
    return f"{type(caught.value).__name__}: {_without_addresses(text)}"


def _without_addresses(text: str) -> str:
    """Addresses differ from run to run, and PTX lines from change to change."""
    kept = [line.split(", address 0x")[0].split("; PTX line")[0] for line in text.splitlines()]
    return "\n".join(kept)


def test_every_error_says_what_the_golden_file_says(golden):
    texts = [f"== {name}\n{_text_of(case)}\n" for name, case in CASES.items()]
    golden(HERE / "launch.txt", "\n".join(texts))


def test_a_grid_of_zero_is_no_error():
    with ptxforge.use_device(EmulatorDevice()):
        assert scale[(0,)](_array(), _array(), 64, 2.0, BLOCK=64) is None
