#!/bin/sh
# install.sh PYTHON LOCK EXTRAS: install what a lock file names, then this project without its dependencies.
#
# Locks are for Python 3.11 to 3.13. With another Python, or with LOCKED=0 (for another registry, say), the versions
# are those of constraints.txt, and hashes are not checked.
set -eu
python=$1 lock=$2 extras=$3
install="$python -m pip --disable-pip-version-check install --quiet"
supported=$($python -c 'import sys; print(int((3, 11) <= sys.version_info < (3, 14)))')
if [ "${LOCKED:-$supported}" != 1 ]; then
  echo "Installing by constraints.txt, without hashes." >&2
  exec $install --constraint constraints.txt --editable ".$extras"
fi
if [ "$lock" = test ]; then  # pip would prefer PyPI's build, whose hash it knows, and 3 GB of CUDA with it
  $install --require-hashes --no-deps --requirement locks/cpu.txt 2>/dev/null || echo "No CPU build of torch is found." >&2
fi
$install --require-hashes --no-deps --requirement "locks/$lock.txt"
# A build of torch for GPUs needs CUDA, which a CPU build does without.
if $python -c 'from importlib.metadata import version; exit("+cpu" in version("torch"))' 2>/dev/null; then
  $install --require-hashes --no-deps --requirement locks/cuda.txt
fi
if [ "$lock" = demo ]; then  # the other locks come on top of it
  $install --no-deps --no-build-isolation --editable .
fi
