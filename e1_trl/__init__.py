"""Elastic Reasoning on TRL: budget-constrained GRPO with separate thinking and solution budgets.

`from e1_trl import E1Config, E1Trainer` imports TRL at that moment; evaluation and reports work without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from e1_trl.training.config import E1Config
    from e1_trl.training.trainer import E1Trainer

__all__ = ["E1Config", "E1Trainer"]

_MODULES = {"E1Config": "e1_trl.training.config", "E1Trainer": "e1_trl.training.trainer"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("e1-trl")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module("e1_trl.versions").check_versions()
    return getattr(import_module(_MODULES[name]), name)
