#!/bin/sh
# The Python of Spark's processes on this machine (session.py names it, PYSPARK_PYTHON).
# Spark puts zips of pyspark and py4j, and a jar, before all other modules. Zips hold no bytecode, so
# every process would compile pyspark anew; without them it is found where it is installed.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case $entry in
    "$SPARK_HOME"/python/lib/*.zip | "$SPARK_HOME"/jars/*.jar) ;;
    *) kept="${kept:+$kept:}$entry" ;;
  esac
done
export PYTHONPATH="$kept"
exec "$TIDEMILL_PYTHON" "$@"
