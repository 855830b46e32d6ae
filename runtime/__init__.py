"""Texts become callables, slots become memory, schedules run."""
from .cache import ObjectCache as ObjectCache
from .compiler import LoadError as LoadError
from .frame import Frame as Frame
from .frame import RunError as RunError
from .loader import Loader as Loader
from .loader import default_loader as default_loader
from .pool import Pool as Pool
from .pool import default_pool as default_pool
from .schedule import Executable as Executable
from .schedule import ExecutableReport as ExecutableReport
from .target import HostInfo as HostInfo
from .target import host as host
