"""How NumPy's own functions differentiate, by topic; importing this package fills the registry.

`differentiate(np.f, rule of argument 0, rule of argument 1, …)` is one line of a table: a rule takes the result and the
arguments and returns the pullback. `implements(np.f)` writes a function in terms of others. `nondifferentiable`
lists what gives plain arrays. `operators` and `methods` attach the same functions to Variable.
"""

from . import elementwise, reductions, shaping, indexing, products, linalg, sorting, statistics  # noqa: F401, I001
from . import polynomials, refused, methods  # noqa: F401  (methods comes last: it looks the others up)
