#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
cd "${APP_DIR:-/app}" || exit 1
for n in 1 2 3 4; do
    echo "working out $n"
    sleep 1
    echo $((n + n)) >> squares.txt
done
