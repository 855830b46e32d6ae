"""The main module of the processes that a script under ``python -m kusari run`` starts afresh.

multiprocessing's ``spawn`` and ``forkserver`` import the main module again in the child, by the name in its
``__spec__``.  ``run`` puts this module's name there, so that Chainer's names are installed before the script is read.
"""

import os

from .. import compat
from .run import SCRIPT_VARIABLE, source_of

if SCRIPT_VARIABLE in os.environ:  # not where modules are only looked through
    compat.install()
    __file__ = os.environ[SCRIPT_VARIABLE]
    exec(compile(source_of(__file__), __file__, "exec"), globals())
