"""Kernels saved to files, and launched from there by Python and by C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ptxforge
from ptxforge.cli import main
from ptxforge.cli.demo_kernels import add
from ptxforge.runtime import tools
from ptxforge.runtime.loaded import c_header
from ptxforge.support.errors import ArgumentError, PtxforgeError
from ptxforge.support.tensor_map import TensorMapRecipe
from tests.driver.fake_driver import CUBIN, FakeDriver, install

from .conftest import add as host_add

TYPES = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32"}
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@pytest.fixture
def saved(tmp_path):
    add.compile(TYPES, {"BLOCK": 64}, "sm_80", num_warps=2).save(tmp_path / "add.ptxf")
    return tmp_path / "add.ptxf"


def data():
    x = np.arange(100, dtype=np.float32)
    return x, 2 * x, np.zeros_like(x)


def test_a_saved_kernel_is_launched(saved, emulator):
    kernel = ptxforge.load(saved)
    assert repr(kernel) == "<LoadedKernel add(x: *fp32:16, y: *fp32:16, out: *fp32:16, n: i32) for sm_80>"
    assert kernel.artifact.constants == {"BLOCK": 64} and kernel.asm["ptx"] == kernel.artifact.ptx
    x, y, out = data()
    with ptxforge.use_device(emulator):
        kernel[lambda arguments: (ptxforge.cdiv(arguments["n"], 64),)](x, y, out, n=100)
    np.testing.assert_array_equal(out, x + y)
    there = [ptxforge.to_device(array, emulator) for array in data()]
    kernel[(2,)](*there, np.int64(100))
    np.testing.assert_array_equal(there[2].numpy(), x + y)
    assert kernel[(0,)](*there, 100) is None


def test_without_source_and_compiler(saved, tmp_path):
    script = (
        "import sys, numpy as np, ptxforge\n"
        "x = np.ones(100, np.float32); out = np.zeros_like(x)\n"
        f"ptxforge.load({str(saved)!r})[(2,)](x, x, out, 100)\n"
        "print(out.sum(), 'ptxforge.frontend' in sys.modules, 'ptxforge.passes' in sys.modules)\n"
    )
    paths = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": paths}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "200.0 False False\n", done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 2.5}, "argument 'n': .*2.5 is not an integer"),
        ({"n": 1 << 40}, "argument 'n': .*does not fit in int32"),
        ({"x": 5}, r"argument 'x': the kernel was compiled for \*fp32:16, and this is i32"),
        ({"n": np.zeros(4, np.float32)}, "argument 'n': the kernel was compiled for i32"),
        ({"x": np.zeros(100, np.float16)}, r"argument 'x': .*\*fp32:16, and this is \*fp16:16"),
        ({"x": np.zeros(101, np.float32)[1:]}, r"argument 'x': .*\*fp32:16, and this is \*fp32"),
        ({"num_warp": 2}, "argument 'num_warp': .*did you mean 'num_warps'"),
    ],
)
def test_arguments_of_another_type(saved, change, message):
    x, y, out = data()
    with pytest.raises(ArgumentError, match=message):
        ptxforge.load(saved)[(2,)](**{"x": x, "y": y, "out": out, "n": 100} | change)


def test_a_missing_argument(saved):
    with pytest.raises(ArgumentError, match="'add' is missing argument 'n'"):
        ptxforge.load(saved)[(2,)](*data())


def test_a_file_that_is_damaged(saved):
    whole = saved.read_bytes()
    for wrong in (b"", whole[:-1], whole[:200] + b"?" + whole[201:], b"text"):
        saved.write_bytes(wrong)
        with pytest.raises(PtxforgeError, match="holds no saved kernel"):
            ptxforge.load(saved)


def test_machine_code_that_came_along(tmp_path, compiled, monkeypatch, caplog):
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    monkeypatch.setattr(tools, "machine_code", lambda ptx, target: CUBIN + ptx.encode())
    made = ptxforge.jit(host_add, do_not_specialize=["n"]).compile(TYPES)
    made.save(tmp_path / "k.ptxf", machine_code=True)
    for refuses, loaded in [(False, ["machine code"]), (True, ["machine code", "text"])]:
        driver = install(monkeypatch, FakeDriver())
        driver.refuses_machine_code = refuses
        x = ptxforge.to_device(np.zeros(8, np.float32))
        kernel = ptxforge.load(tmp_path / "k.ptxf")
        for _ in range(2):
            kernel[(1,)](x, x, x, 8)
        assert driver.loaded == loaded and len(driver.launches) == 2
    assert "the machine code that came with 'add' is refused" in caplog.text


# C

CUDA_H = """
#include <stddef.h>
#include <stdint.h>
typedef int CUresult;
typedef struct { int x; } *CUmodule, *CUfunction, *CUstream;
typedef unsigned long long CUdeviceptr;
typedef struct { _Alignas(64) uint64_t opaque[16]; } CUtensorMap;
enum { CUDA_SUCCESS = 0, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream, void **, void **);
"""
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "add.h"

/* A driver that tells what it is asked. */
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    printf("image %s\\n", memcmp(image, "\\x7f" "ELF", 4) ? "text" : "machine code");
    *module = (CUmodule)1; return 0;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    printf("function %s\\n", name); *function = (CUfunction)2; return 0;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    printf("attribute %d %d\\n", attribute, value); return 0;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **p, void **extra) {
    printf("grid %u %u %u block %u %u %u shared %u\\n", x, y, z, bx, by, bz, shared);
    printf("%llx %llx %llx %d\\n", *(unsigned long long *)p[0], *(unsigned long long *)p[1],
           *(unsigned long long *)p[2], *(int *)p[3]);
    return 0;
}
int main(void) {
    CUmodule module; CUfunction function;
    if (ptxforge_add_load(&module, &function)) return 1;
    return ptxforge_add_launch(function, 3, 1, 1, 0, 0x1000, 0x2000, 0x3000, -7);
}
"""


@pytest.fixture
def exported(tmp_path):
    kernels = Path(ptxforge.__file__).parent / "cli" / "demo_kernels.py"

    def export(*more: str) -> Path:
        signature = ",".join(TYPES.values())
        arguments = ["export", f"{kernels}:add", "--signature", signature, "--constants", "BLOCK=64"]
        assert main([*arguments, "--target", "sm_80", "--num-warps", "2", "-o", str(tmp_path), *more]) == 0
        return tmp_path

    return export


def test_what_is_exported(exported, capsys):
    folder = exported()
    told = capsys.readouterr().out.split()
    assert sorted(told) == sorted(str(path) for path in folder.iterdir())
    names = {path.name for path in folder.iterdir()}
    has_assembler = tools.find("ptxas") is not None
    assert names == {"add.ptx", "add.h", "add.ptxf"} | ({"add.cubin"} if has_assembler else set())
    header = (folder / "add.h").read_text()
    for line in (
        '#define PTXFORGE_ADD_SYMBOL "add"',
        '#define PTXFORGE_ADD_TARGET "sm_80"',
        "#define PTXFORGE_ADD_THREADS 64",
        "#define PTXFORGE_ADD_SHARED_BYTES 0",
        " *   x: pointer to fp32, aligned to 16 bytes",
        " *   BLOCK = 64, compiled in",
    ):
        assert line in header
    x, y, out = data()
    ptxforge.load(folder / "add.ptxf")[(2,)](x, y, out, 100)
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
@pytest.mark.parametrize("more", [(), ("--portable",)])
def test_a_c_program_launches_it(exported, more):
    folder = exported(*more)
    (folder / "cuda.h").write_text(CUDA_H)
    (folder / "main.c").write_text(PROGRAM)
    command = [COMPILER, "-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "main.c", "-I."]
    done = subprocess.run([*command, "-o", "main"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=True).stdout
    is_machine_code = not more and tools.find("ptxas") is not None
    assert told.splitlines() == [
        f"image {'machine code' if is_machine_code else 'text'}",
        "function add",
        "grid 3 1 1 block 64 1 1 shared 0",
        "1000 2000 3000 -7",
    ]


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_the_header_fits_the_real_cuda_h(exported):
    """Where the toolkit's headers are installed: the test extra brings them with ptxas."""
    headers = [path.parent for root in sys.path for path in Path(root).glob("nvidia/*/include/cuda.h")]
    if not headers:
        pytest.skip("cuda.h is not installed")
    folder = exported()
    (folder / "main.c").write_text('#include "add.h"\nint main(void) { return 0; }\n')
    command = [COMPILER, "-std=c11", "-Wall", "-Werror", "-Wno-unused-function", "-fsyntax-only", "main.c"]
    done = subprocess.run([*command, f"-I{headers[0]}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_much_shared_memory_and_tensor_maps_in_the_header(compiled):
    made = ptxforge.jit(host_add).compile(TYPES)
    made.shared_bytes = 100_000
    made.parameters = (("x", "*fp32:16"), ("map", "tensormap"), ("scale", "bf16"))
    made.tensor_maps = (TensorMapRecipe("map", "float32", "x", ("n", 16), (16, 1), (4, 16)),)
    header = c_header(made, b"PTX\0")
    assert "MAX_DYNAMIC_SHARED_SIZE_BYTES" in header and "#define PTXFORGE_ADD_SHARED_BYTES 100000" in header
    assert ", CUdeviceptr x, const CUtensorMap *map, uint16_t scale)" in header
    assert "{&x, (void *)map, &scale}" in header and "80,84,88,0," in header
