"""Arrays by the kind of their numbers, under the names that all signatures use. Docstrings give the shapes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
# One of two dimensions.
Matrix: TypeAlias = Array
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
