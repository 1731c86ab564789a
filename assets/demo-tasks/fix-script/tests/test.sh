#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
app="${APP_DIR:-/app}"
logs="${LOGS_DIR:-/logs}/verifier"
sleep 1
got=$(sh "$app/sum.sh")
echo "sum.sh prints $got, 55 is wanted"
[ "$got" = 55 ] && echo 1 > "$logs/reward.txt" || echo 0 > "$logs/reward.txt"
