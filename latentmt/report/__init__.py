"""The report on a model: measured, drawn, and written as a page and as Markdown."""
