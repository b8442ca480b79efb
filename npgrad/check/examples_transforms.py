"""Examples of transforms that record a primitive of their own."""

from __future__ import annotations

import numpy as np

from ..higher import checkpoint
from .examples import example, normal

example(checkpoint(np.tanh), normal(3, 4))
example(checkpoint(np.multiply), normal(3, 1), normal(4))
example(checkpoint(np.sin), normal())
