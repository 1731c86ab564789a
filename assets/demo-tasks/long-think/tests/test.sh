#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
app="${APP_DIR:-/app}"
logs="${LOGS_DIR:-/logs}/verifier"
sleep 1
echo "answer.txt holds $(cat "$app/answer.txt")"
[ "$(cat "$app/answer.txt")" = 42 ] && echo 1 > "$logs/reward.txt" || echo 0 > "$logs/reward.txt"
