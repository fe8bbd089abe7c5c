"""Builds the site from files of the whole repository, so that a relative link means the same there as on GitHub."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
SOURCES = (
    *(
        "*.md",
        "LICENSE",
        "docs/*.md",
        "docs/*.png",
        "docs/*.ipynb",
        "deploy/*",
        "benchmarks/*.md",
        "tests/*.md",
        "tests/fixtures/*/README.md",
    ),
    *("recipes/*/*.md", "recipes/*/*.yaml", "recipes/*/report*/*.md", "recipes/*/report*/figures/*"),
    "latentmt/pretrained/**/*.md",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by those of `SOURCES`, each at its path in the repository."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    paths = sorted({path for pattern in SOURCES for path in ROOT.glob(pattern)})
    pages = [File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)) for path in paths]
    return Files([*theme, *pages])
