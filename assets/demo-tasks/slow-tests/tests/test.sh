#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
app="${APP_DIR:-/app}"
logs="${LOGS_DIR:-/logs}/verifier"
n=0
while :; do
    n=$((n + 1))
    echo "case $n of very many"
    sleep 1
done
