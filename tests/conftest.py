"""Shapes and types of the whole package are checked while the tests run, and only then."""

from jaxtyping import install_import_hook

install_import_hook("latentmt", "beartype.beartype")
