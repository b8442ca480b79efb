"""Numeric verification of gradients: every coordinate against differences, and the culprit named when one is wrong."""

from .contract import Breach
from .examples import EXAMPLES, Example, example, normal, positive
from .gradients import check_grads, check_vjp
from .report import GradientError, Report

__all__ = [
    "EXAMPLES", "Breach", "Example", "GradientError", "Report", "check_grads", "check_vjp", "example", "normal",
    "positive",
]  # fmt: skip
