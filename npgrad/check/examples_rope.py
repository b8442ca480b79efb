"""Examples of rotations: both layouts and directions, tables as inputs, tables per batch row, partial heads, gaps."""

from __future__ import annotations

from ..ops import rotary_pairs
from ..rope import RotaryEmbedding, add_sinusoidal_position, adjacent_to_half, half_to_adjacent
from .examples import example, normal

_tables = RotaryEmbedding(6, 8, 100.0)
for _layout in ("adjacent", "half"):
    for _inverse in (False, True):
        example(rotary_pairs, normal(3, 4), normal(3, 2), normal(3, 2, seed=1), inverse=_inverse, layout=_layout)
example(rotary_pairs, normal(2, 1, 3, 6), _tables.cosines[1:4], _tables.sines[1:4])
example(rotary_pairs, normal(2, 3, 2, 4), normal(2, 1, 2, 2), normal(2, 1, 2, 2, seed=1))
example(rotary_pairs, normal(2, 4), normal(3, 2, 2), normal(3, 2, 2, seed=1), layout="half")
example(rotary_pairs, normal(0, 3, 4), normal(3, 2), normal(3, 2, seed=1))
example(rotary_pairs, normal(2, 0, 4), normal(0, 2), normal(0, 2, seed=1), layout="half")

_partial = RotaryEmbedding(6, 8, layout="half", rotary_dim=4)
_scaled = RotaryEmbedding(4, 8, scaling={"rope_type": "yarn", "factor": 4.0})
for _rotate, _width, _places in (
    (RotaryEmbedding(6, 8).rotate, 6, {"offset": 5}),
    (_partial.rotate, 6, {"positions": [0, 9, -3]}),
    (_scaled.rotate, 4, {"positions": [7, 2, 10**6]}),
):
    for _lanes in ((), (2,), (2, 2)):
        example(_rotate, normal(*_lanes, 3, _width), **_places)
example(_partial.rotate, normal(2, 2, 3, 6), positions=[[0, 1, 5], [-3, 0, 9]])

example(adjacent_to_half, normal(12, 2), 6)
example(adjacent_to_half, normal(3, 12), 6, rotary_dim=4, axis=-1)
example(half_to_adjacent, normal(12, 2), 6)
example(half_to_adjacent, normal(2, 2), 2)
example(half_to_adjacent, normal(3, 8), axis=1)
for _lanes in ((), (2,), (2, 3)):
    example(add_sinusoidal_position, normal(*_lanes, 3, 4), 2, base=100.0)
