"""Non-autoregressive machine translation that refines a continuous latent."""

__version__ = "0.1.0"
