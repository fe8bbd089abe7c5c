"""Figures, drawn from measured JSON and from nothing else."""
