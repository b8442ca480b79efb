"""Examples of transforms that record a primitive of their own."""

from __future__ import annotations

import numpy as np

from ..higher import checkpoint
from .examples import example, normal

_tanh, _product = checkpoint(np.tanh), checkpoint(np.multiply)
for _shape in ((), (3, 4), (2, 1, 3)):
    example(_tanh, normal(*_shape))
for _row in (normal(1), normal(4), normal(2, 3, 4)):
    example(_product, normal(3, 1), _row)
