#!/bin/sh
# Create a virtual environment: make-venv.sh PYTHON DIRECTORY
# Debian's python3 has no venv module. As root, install the module; otherwise print the command to type.
set -eu
{
  python=$1
  venv=$2
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "error: $python is not Python 3.11 or newer" >&2
    echo "hint: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
  fi
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
      apt-get update -qq
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv" >/dev/null
    else
      echo "error: $python has no venv module" >&2
      echo "hint: sudo apt-get install python$version-venv" >&2
      exit 1
    fi
  fi
  "$python" -m venv "$venv"
  exit
}
