"""Sentences that make a worker fail, for servers that are started with this folder first in `PYTHONPATH`.

Python imports a module `sitecustomize` when it starts, in the server and in each of its workers.
"""

from __future__ import annotations

import os
from pathlib import Path

SLOW, HANG, STUCK, CRASH = "langsam langsam", "hängt hängt", "klemmt klemmt", "stürzt stürzt"
"""Takes a second; never returns; never returns, nor lets any thread run; ends the process."""

GRACE = 1.0
"""Seconds until a worker is taken to hang."""

CODE = f'''
import os, re, sys
class Finder:
    """Changes modules when they are imported, and imports nothing before."""
    def __init__(self):
        self.changes = {{"latentmt.translator": change_translator, "latentmt.serve.broker": change_broker}}
    def find_spec(self, name, path=None, target=None):
        if not (change := self.changes.pop(name, None)):
            return None
        import importlib.util
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            change(module)
        spec.loader.exec_module = exec_module
        return spec
def change_broker(module):
    module.GRACE_SECONDS = float(os.environ["GRACE_SECONDS"])
def change_translator(module):
    import time
    original = module.Translator._segment
    def changed(self, text, *others, **options):
        if "{SLOW}" in text:
            time.sleep(1)
        if "{HANG}" in text:
            time.sleep(3600)
        if "{STUCK}" in text:
            re.match("(a*)*b", "a" * 60)  # holds the interpreter's lock
        if "{CRASH}" in text:
            os.abort()
        return original(self, text, *others, **options)
    module.Translator._segment = changed
sys.meta_path.insert(0, Finder())
'''


def environment(folder: Path, grace: float = GRACE) -> dict[str, str]:
    """The environment of a server whose workers may fail."""
    (folder / "sitecustomize.py").write_text(CODE, encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "GRACE_SECONDS": str(grace)}
