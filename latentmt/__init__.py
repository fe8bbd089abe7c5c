"""Non-autoregressive machine translation that refines a continuous latent: the public names.

What needs torch is imported when it is first asked for, so that `import latentmt` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latentmt.errors import UserError

if TYPE_CHECKING:
    from latentmt.infer.translator import Translation, Translator

__all__ = ["Translation", "Translator", "UserError"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("latentmt.infer.translator"), name)
