"""Texts become callables, slots become memory, schedules run."""
from .cache import ObjectCache as ObjectCache
from .compiler import LoadError as LoadError
from .executable import Executable as Executable
from .executable import ExecutableReport as ExecutableReport
from .frame import Frame as Frame
from .loader import Loader as Loader
from .loader import default_loader as default_loader
from .python_rows import RunError as RunError
from .target import HostInfo as HostInfo
from .target import host as host
from .thread_pool import Pool as Pool
from .thread_pool import default_pool as default_pool
