"""Kernels of the graphics card under oclgrind, which reports races and accesses out of range.

    apt-get install oclgrind
    PYTHONPATH=typings:tests oclgrind --data-races --max-errors 20 .venv/bin/python tools/check_races.py

Needs pyopencl. A kernel of every kind runs on ones, all arrays in buffers of their own size; oclgrind writes what it
finds to the error stream, and the last line here counts kernels. Those called by table are left out, as they take
addresses.
"""
from __future__ import annotations

import os

import numpy as np
import pyopencl as cl
from card_samples import SAMPLES, Sample

from kusari.codegen.cuda.text.dialect import OPENCL_OPTIONS, opencl_source


def run(context: cl.Context, queue: cl.CommandQueue, sample: Sample) -> int:
    """Run the kernels of a sample; returns their number."""
    flags = cl.mem_flags
    most = max(k.shared for k in sample.kernels)
    arrays = [*sample.arrays(), *([np.zeros(most, np.uint8)] if most else [])]
    buffers = [cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=np.atleast_1d(a)) for a in arrays]
    for kernel in sample.kernels:
        program = cl.Program(context, opencl_source(kernel.text)).build(list(OPENCL_OPTIONS))
        function = cl.Kernel(program, kernel.symbol)
        for i in range(function.num_args):
            function.set_arg(i, buffers[i])
        threads = kernel.facts.threads
        cl.enqueue_nd_range_kernel(queue, function, (kernel.facts.blocks * threads,), (threads,))
        queue.finish()
    return len(sample.kernels)


def main() -> None:
    """Run all samples."""
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    device = cl.get_platforms()[0].get_devices()[0]
    print(device.platform.name)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    count = 0
    for make in SAMPLES.values():
        sample = make()
        if not any(k.facts.by_table for k in sample.kernels):
            print(sample.name, flush=True)
            count += run(context, queue, sample)
    print(f"{count} kernels ran")


if __name__ == "__main__":
    main()
