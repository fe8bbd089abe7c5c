"""Non-autoregressive machine translation that refines a continuous latent: the public names.

They are imported when they are first asked for, so that `import latentmt` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latentmt.errors import UserError

if TYPE_CHECKING:
    from latentmt.options import DecodingOptions
    from latentmt.results import Translation
    from latentmt.translator import Translator

__all__ = ["DecodingOptions", "Translation", "Translator", "UserError"]

__version__ = "0.2.0"

_MODULES = {"DecodingOptions": "options", "Translation": "results", "Translator": "translator"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"latentmt.{_MODULES[name]}"), name)
