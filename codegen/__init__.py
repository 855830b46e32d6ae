"""Plans in, texts out: Numba and LLVM IR for the CPU, CUDA C for the GPU. Text only: nothing is compiled here."""
from .generate import generate as generate
from .native import generator_version as generator_version
from .target import TARGETS as TARGETS
from .target import Target as Target
