#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
app="${APP_DIR:-/app}"
logs="${LOGS_DIR:-/logs}/verifier"
echo "checking answer.txt"
sleep 1
if [ "$(cat "$app/answer.txt")" = 9 ]; then
    echo "9 words: right"
    echo 1 > "$logs/reward.txt"
else
    echo 0 > "$logs/reward.txt"
fi
