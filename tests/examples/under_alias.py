"""A module run as ``__main__``, with Chainer's names installed: ``under_alias.py pytest test_file.py``."""

import runpy
import sys

import kusari.compat

if __name__ == "__main__":
    kusari.compat.install()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
