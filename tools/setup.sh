#!/bin/sh
# Install Tidemill and all it needs into a virtual environment, from a bare machine with Python.
set -eu
venv="$1"
python="${PYTHON:-python3}"

if ! command -v "$python" >/dev/null 2>&1; then
  echo "error: no $python found" >&2
  echo "  fix: install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "error: $("$python" --version) is too old" >&2
  echo "  fix: install Python 3.11 or newer, or say make PYTHON=python3.11" >&2
  exit 1
fi

java_version() {
  "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}
found=$(java_version || true)
if [ "${found:-0}" -lt 17 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Java 17 not found: installing openjdk-17-jre-headless"
  { apt-get update -qq && apt-get install -qq -y openjdk-17-jre-headless; } >/dev/null || true
  found=$(java_version || true)
fi
if [ "${found:-0}" -lt 17 ]; then
  echo "error: Spark needs Java 17 or newer, found: ${found:-none}" >&2
  echo "  fix: Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless" >&2
  echo "       macOS: brew install openjdk@17; or set JAVA_HOME to one you have" >&2
  exit 1
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
uv_version=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' requirements.lock)
if [ ! -x "$venv/bin/uv" ]; then
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null
  "$venv/bin/python" -m pip install -q --disable-pip-version-check "uv==$uv_version"
fi
VIRTUAL_ENV="$venv" "$venv/bin/uv" pip install -q --require-hashes -r requirements.lock
VIRTUAL_ENV="$venv" "$venv/bin/uv" pip install -q --no-deps -e .
# Where PYTHONDONTWRITEBYTECODE is set, as in many images, every start of Python would compile all
# that it imports, and Spark starts many: compile once, here. Files of other Pythons do not matter.
"$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" || true
