#!/usr/bin/env bash
# A virtual environment that also sees the packages of another one, without changing it:
#     scripts/venv_on_top.sh PYTHON_OF_THE_OTHER FOLDER
set -euo pipefail
below=$("$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$1" -m venv "$2"
"$2/bin/python" -m pip uninstall -qq --yes setuptools # an older one may come with venv: the other environment's is to be seen
here=$("$2/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# addsitedir, not a bare path: it also reads the other environment's .pth files (editable installs).
printf 'import site; site.addsitedir(%s)\n' "$("$1" -c 'import sys; print(repr(sys.argv[1]))' "$below")" >"$here/below.pth"
