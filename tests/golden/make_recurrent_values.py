"""Write what Chainer 7.8.1 gives for recurrent links.

Run by a Python that has Chainer, with the file to write:  python make_recurrent_values.py FILE
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")
sys.path.insert(0, str(Path(__file__).parents[1] / "links"))

import chainer  # noqa: E402
from recurrent_cases import values  # noqa: E402

np.savez_compressed(sys.argv[1], **{name: np.concatenate([np.ravel(a).astype("d") for a in arrays])
                                    for name, arrays in values(chainer).items()})
