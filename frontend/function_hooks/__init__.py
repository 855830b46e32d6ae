"""Ready-made hooks around function applications."""
from .cuda_profile import CUDAProfileHook
from .cupy_memory_profile import CupyMemoryProfileHook
from .debug_print import PrintHook
from .timer import TimerHook

__all__ = ["CUDAProfileHook", "CupyMemoryProfileHook", "PrintHook", "TimerHook"]
