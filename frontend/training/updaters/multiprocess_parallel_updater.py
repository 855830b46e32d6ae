"""Data parallelism over processes of one machine."""
from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import connection, resource_tracker, util
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from ... import backend
from ...backends import cuda
from ...dataset import convert
from ...reporter import Reporter
from .standard_updater import StandardUpdater

__all__ = ["MultiprocessParallelUpdater"]

# By how much a hyperparameter is changed with n processes, whose gradients are added up: as the batch were n times as
# large and its loss a sum.
_CHANGED: dict[str, tuple[str, Callable[[float, int], float]]] = {
    **dict.fromkeys(("Adam", "AdaGrad", "RMSprop"), ("eps", lambda eps, n: eps * n)),
    **dict.fromkeys(("RMSpropGraves", "AdaDelta"), ("eps", lambda eps, n: eps * n**2))}
_OTHERS: tuple[str, Callable[[float, int], float]] = ("lr", lambda lr, n: lr / n)


class MultiprocessParallelUpdater(StandardUpdater):
    """Updater that computes gradients in several processes, each on a device of its own, and adds them up.

    The first device is this process's; its optimizer updates, and the others take over the parameters. Gradients and
    parameters go through shared memory, and between cards by NCCL. Only this process reports. As in Chainer, the
    learning rate is divided by the number of devices, or ``eps`` is multiplied by it, with a warning.

    Args:
        iterators: an iterator for each device, over datasets of one length.
        optimizer: optimizer that is set up with a model.
        converter: makes arrays of a batch; ``converter(batch, device)``.
        devices: a device for each process, as a list, or a dict whose ``'main'`` is the first.
        auto_new_epoch: call ``optimizer.new_epoch`` when the first iterator starts an epoch.

    Raises:
        ValueError: devices are missing, or there is another number of iterators or examples.
    """

    def __init__(
        self,
        iterators: Sequence[Any],
        optimizer: Any,
        converter: Callable[..., Any] = convert.concat_examples,
        devices: dict[str, Any] | Sequence[Any] | None = None,
        auto_new_epoch: bool = True,
    ) -> None:
        if isinstance(devices, dict):
            devices = [devices["main"], *(device for name, device in devices.items() if name != "main")]
        if not isinstance(devices, (list, tuple)):
            raise ValueError(f"devices argument should be either dict, list or tuple, but {type(devices)} was given.")
        if any(device is None for device in devices):
            raise ValueError("a device must be specified for each process, such as '@numpy' or 0")
        if len(iterators) != len(devices):
            raise ValueError(f"an iterator is needed for each device: {len(iterators)} and {len(devices)}")
        if len({len(iterator.dataset) for iterator in iterators}) > 1:
            raise ValueError("the iterators' datasets must be of one length: "
                             f"{[len(iterator.dataset) for iterator in iterators]}")
        name, change = _CHANGED.get(type(optimizer).__name__, _OTHERS)
        if hasattr(optimizer, name):
            setattr(optimizer, name, change(getattr(optimizer, name), len(devices)))
            warnings.warn(f"optimizer.{name} is changed to {getattr(optimizer, name)} by MultiprocessParallelUpdater "
                          "for new batch size.", stacklevel=2)
        super().__init__(iterators[0], optimizer, converter, auto_new_epoch=auto_new_epoch)
        self._master = optimizer.target
        self._devices = [backend.get_device(device) for device in devices]
        self._mpu_iterators = list(iterators)
        self._workers: list[Any] = []
        self._pipes: list[Any] = []
        self._exchange: Any = None
        self._stop: Any = None

    @staticmethod
    def available() -> bool:
        """Whether it can be used: yes; on cards it needs CuPy's NCCL."""
        return True

    def setup_workers(self) -> None:
        """Start the processes, unless they run."""
        if self._exchange is not None:
            return
        self._master.cleargrads()
        on_cards = all(isinstance(device, cuda.GpuDevice) for device in self._devices)
        count = len(self._devices)
        exchange = self._exchange = (_Nccl if on_cards else _SharedMemory)(count)
        for i in range(1, count):
            pipe, end = multiprocessing.Pipe()
            worker = multiprocessing.Process(target=_work, args=(
                i, end, exchange, self._master, self._devices[i], self._mpu_iterators[i], self.converter,
                self.loss_func))
            worker.start()
            end.close()
            self._workers.append(worker)
            self._pipes.append(pipe)
        # Before Python joins the processes at its end.
        self._stop = util.Finalize(self, _stop, (self._pipes, self._workers, exchange), exitpriority=20)
        self._master.to_device(self._devices[0])
        exchange.connect(0)

    def update_core(self) -> None:
        """Compute gradients on all devices, take one step with their sum, and share the parameters."""
        self.setup_workers()
        optimizer = self._optimizers["main"]
        iterator: Any = self._iterators["main"]
        started = self._exchange.kinds is not None
        if started:
            self._send("update")
        with backend.using_device(self._devices[0]):
            batch = convert.call_converter(self.converter, iterator.next(), self._devices[0])
            loss = _loss(self.loss_func or self._master, batch)
            self._master.cleargrads()
            loss.backward()
            del loss
            if not started:
                self._begin()
            self._exchange.sum(0, self._master, self._wait)
            optimizer.update()
            self._exchange.publish(0, self._master)
        if self.auto_new_epoch and iterator.is_new_epoch:
            optimizer.new_epoch(auto=True)

    def _begin(self) -> None:
        """Tell the processes where gradients and parameters are, and give them their first job.

        That is done once this process has computed its own gradients, by which all parameters have their shapes.
        """
        exchange = self._exchange
        exchange.begin([(p.shape, np.dtype(p.dtype).str) for p in _members(self._master)])
        self._send((exchange.kinds, exchange.name))
        exchange.publish(0, self._master)
        self._send("update")

    def _send(self, job: Any) -> None:
        for i, (pipe, worker) in enumerate(zip(self._pipes, self._workers, strict=True), 1):
            try:
                pipe.send(job)
            except OSError:
                self._raise(i, worker)

    def _wait(self) -> None:
        """Wait until all processes have given their gradients.

        Raises:
            RuntimeError: one of them has failed, or has been killed.
        """
        for i, (pipe, worker) in enumerate(zip(self._pipes, self._workers, strict=True), 1):
            connection.wait([pipe, worker.sentinel])
            try:
                error = pipe.recv() if pipe.poll() else "gone"
            except (EOFError, OSError):
                error = "gone"
            if error == "gone":
                self._raise(i, worker)
            if error is not None:
                _stop(self._pipes, self._workers, self._exchange)
                raise RuntimeError(f"process {i} of MultiprocessParallelUpdater failed:\n{error}")

    def _raise(self, i: int, worker: Any) -> None:
        worker.join(5)
        _stop(self._pipes, self._workers, self._exchange)
        raise RuntimeError(f"process {i} of MultiprocessParallelUpdater has ended, with exit code {worker.exitcode}")

    def finalize(self) -> None:
        """End the processes and finalize the iterators."""
        if self._stop is not None:
            self._stop()
        super().finalize()


def _stop(pipes: list[Any], workers: list[Any], exchange: Any) -> None:
    """End the processes."""
    for pipe in pipes:
        try:
            pipe.send("finalize")
            pipe.close()
        except OSError:
            continue
    for worker in workers:
        worker.join(10)
        if worker.is_alive():
            worker.terminate()
            worker.join()
    pipes.clear()
    workers.clear()
    exchange.release()


def _work(i: int, pipe: Any, exchange: Any, model: Any, device: Any, iterator: Any, converter: Any,
          loss_func: Any) -> None:
    """Compute gradients whenever the process above asks for them; return once it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process above
    above = multiprocessing.parent_process()
    assert above is not None
    reporter = Reporter()
    reporter.add_observer("main", model)
    reporter.add_observers("main", model.namedlinks(skipself=True))
    error: str | None = None
    with backend.using_device(device):
        model.to_device(device)
        exchange.connect(i)
        while True:
            if pipe not in connection.wait([pipe, above.sentinel]):
                break
            try:
                job = pipe.recv()
            except (EOFError, OSError):
                break
            if job == "finalize":
                break
            if job != "update":
                exchange.begin(*job)
                for p, (shape, _) in zip(_members(model), exchange.kinds, strict=True):
                    if p.array is None:
                        p.initialize(shape)
                continue
            try:
                exchange.take(i, model)
                batch = convert.call_converter(converter, iterator.next(), device)
                with reporter.scope({}):
                    loss = _loss(loss_func or model, batch)
                model.cleargrads()
                loss.backward()
                del loss
                exchange.sum(i, model, lambda: None)
            except Exception:
                error = traceback.format_exc()
            pipe.send(error)
    iterator.finalize()
    sys.stdout.flush()


def _loss(function: Callable[..., Any], arrays: Any) -> Any:
    """Call with the elements of a tuple, the entries of a dict, or the thing itself."""
    if isinstance(arrays, tuple):
        return function(*arrays)
    return function(**arrays) if isinstance(arrays, dict) else function(arrays)


def _members(model: Any) -> list[Any]:
    """Return the parameters of a model, once each, in one order in all processes."""
    return [*{id(p): p for _, p in model.namedparams()}.values()]


class _SharedMemory:
    """Gradients of each process, and the parameters, as flat arrays in memory that the processes share.

    All processes have gradients for the same parameters: a missing one is zero.
    """

    kinds: list[tuple[tuple[int, ...], str]] | None = None
    name = ""

    def __init__(self, count: int) -> None:
        self._count = count
        self._block: Any = None
        self._starts: list[int] = []
        resource_tracker.ensure_running()  # one for all processes: it removes the memory where this one is killed

    def connect(self, i: int) -> None:
        """Do nothing."""

    def begin(self, kinds: list[tuple[tuple[int, ...], str]], name: str = "") -> None:
        """Make the memory, or as another process open that of a name."""
        sizes = [int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize for shape, dtype in kinds]
        self._starts = [0, *np.cumsum([-(-size // 64) * 64 for size in sizes]).tolist()]
        self.kinds = kinds
        if name:
            self._block = SharedMemory(name=name)
        else:
            self._block = SharedMemory(create=True, size=max(self._count * self._starts[-1], 1))
            self.name = self._block.name

    def release(self) -> None:
        """Give the memory back to the system."""
        if self._block is not None:
            self._block.close()
            self._block.unlink()
            self._block = None

    def _arrays(self, i: int) -> list[np.ndarray]:
        """Return a process's gradients, or as number 0 the parameters."""
        first = i * self._starts[-1]
        return [np.ndarray(shape, dtype, self._block.buf, first + start)
                for (shape, dtype), start in zip(self.kinds or (), self._starts, strict=False)]

    def sum(self, i: int, model: Any, wait: Callable[[], None]) -> None:
        """Give this process's gradients; as number 0 wait for the others', and add them up."""
        host = backend.CpuDevice()
        if i:
            for p, shared in zip(_members(model), self._arrays(i), strict=True):
                shared[...] = 0 if p.grad is None else host.send(p.grad)
            return
        wait()
        others = [self._arrays(k) for k in range(1, self._count)]
        for p, *grads in zip(_members(model), *others, strict=True):
            if not grads:
                continue
            total = sum(grads[1:], grads[0].copy()) if p.grad is None else sum(grads, host.send(p.grad))
            p.grad = p.device.send(total)

    def publish(self, i: int, model: Any) -> None:
        """Give the others the parameters."""
        host = backend.CpuDevice()
        for p, shared in zip(_members(model), self._arrays(0), strict=True):
            shared[...] = host.send(p.array)

    def take(self, i: int, model: Any) -> None:
        """Take over the parameters."""
        for p, shared in zip(_members(model), self._arrays(0), strict=True):
            p.array[...] = p.device.send(shared.copy())


class _Nccl:
    """Gradients added up and parameters shared among cards, by NCCL through CuPy."""

    _types = {"float16": "NCCL_FLOAT16", "float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64"}
    kinds: list[tuple[tuple[int, ...], str]] | None = None
    name = ""

    def __init__(self, count: int) -> None:
        self._count = count
        self._key = cuda.cupy.cuda.nccl.get_unique_id() if count > 1 else None
        self._comm: Any = None

    def connect(self, i: int) -> None:
        """Join the other processes."""
        if self._count > 1:
            self._comm = cuda.cupy.cuda.nccl.NcclCommunicator(self._count, self._key, i)

    def begin(self, kinds: list[tuple[tuple[int, ...], str]], name: str = "") -> None:
        """Note the parameters' shapes."""
        self.kinds = kinds

    def release(self) -> None:
        """Do nothing."""

    def _each(self, arrays: list[Any], call: Callable[..., None]) -> list[Any]:
        """Call with each dtype's arrays as one flat array; returns the arrays of those."""
        nccl, stream = cuda.cupy.cuda.nccl, cuda.cupy.cuda.Stream.null.ptr
        found = list(arrays)
        for kind in sorted({np.dtype(x.dtype).name for x in arrays}):
            positions = [k for k, x in enumerate(arrays) if np.dtype(x.dtype).name == kind]
            flat = cuda.cupy.concatenate([arrays[k].reshape(-1) for k in positions])
            call(flat.data.ptr, flat.size, getattr(nccl, self._types[kind]), stream)
            at = 0
            for k in positions:
                found[k] = flat[at:at + arrays[k].size].reshape(arrays[k].shape)
                at += arrays[k].size
        return found

    def sum(self, i: int, model: Any, wait: Callable[[], None]) -> None:
        """Add up the gradients on the first card."""
        if self._comm is None:
            return
        params = _members(model)
        nccl = cuda.cupy.cuda.nccl
        grads = self._each(
            [p.xp.zeros_like(p.array) if p.grad is None else p.grad for p in params],
            lambda ptr, size, kind, stream: self._comm.reduce(ptr, ptr, size, kind, nccl.NCCL_SUM, 0, stream))
        if i == 0:
            wait()
            for p, grad in zip(params, grads, strict=True):
                p.grad = grad

    def publish(self, i: int, model: Any) -> None:
        """Give the others the parameters, or take them over."""
        if self._comm is not None:
            params = _members(model)
            found = self._each([p.array for p in params], lambda ptr, size, kind, stream: self._comm.bcast(
                ptr, size, kind, 0, stream))
            for p, array in zip(params, found, strict=True):
                if i:
                    p.array[...] = array

    take = publish
