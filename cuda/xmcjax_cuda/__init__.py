"""The CUDA kernels of xmcjax, which loads them: a shared library beside this file."""

from pathlib import Path

#: The path of the shared library.
LIBRARY = Path(__file__).parent / "libxmcjax_cuda.so"
