"""Builds the compiled kernels beside the Python code, where there is a compiler for them."""

import sys
import sysconfig

from setuptools import Extension, setup

FLAGS = [
    "-O3",
    "-std=c++17",
    "-fopenmp",
    "-fvisibility=hidden",
    "-fno-math-errno",
    # A product and a sum are fused only where the code says so: equal bits wherever it is inlined.
    "-ffp-contract=off",
    # False alarms inside of GCC 12's own headers.
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
]
PROCESSORS = {
    "avx512": [
        "-march=x86-64-v4",
        "-mavx512bf16",
        "-mavx512vnni",
        "-mprefer-vector-width=512",
    ],
    "avx2": ["-march=x86-64-v3"],  # with FMA and F16C
}
SOURCES = "src/outpace/kernels/csrc"
HEADERS = [
    *("attention", "inputs", "layer", "linear", "module", "simd_avx2", "simd_avx512", "stack"),
    "threads",
]


def extension(name: str, flags: list[str]) -> Extension:
    """One module, for one kind of processor; installing goes on without it if it does not build."""
    return Extension(
        f"outpace.kernels._{name}",
        [f"{SOURCES}/{name}.cpp"],
        depends=[f"{SOURCES}/{header}.hpp" for header in HEADERS],
        extra_compile_args=FLAGS + flags,
        # No -fopenmp here: PyTorch brings the threads (see outpace/kernels/native.py).
        extra_link_args=["-Wl,-z,lazy"],
        language="c++",
        optional=True,
    )


supported = sys.platform == "linux" and "x86_64" in sysconfig.get_platform()
setup(ext_modules=[extension(*one) for one in PROCESSORS.items()] if supported else [])
