#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
app="${APP_DIR:-/app}"
logs="${LOGS_DIR:-/logs}/verifier"
sleep 1
if [ "$(head -n 1 "$app/reversed.txt")" = three ] && [ "$(tail -n 1 "$app/reversed.txt")" = one ]; then
    echo 1 > "$logs/reward.txt"
else
    echo "the lines are not in reverse order"
    echo 0 > "$logs/reward.txt"
fi
