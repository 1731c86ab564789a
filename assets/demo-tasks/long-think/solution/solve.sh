#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
cd "${APP_DIR:-/app}" || exit 1
echo 42 > answer.txt
echo "answer.txt is written; is it right?"
n=0
while :; do
    n=$((n + 1))
    echo "thinking about it again ($n)"
    sleep 1
done
