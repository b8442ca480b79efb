"""Numeric verification of gradients."""

from .examples import EXAMPLES, Example, example, normal, positive

__all__ = ["EXAMPLES", "Example", "example", "normal", "positive"]
