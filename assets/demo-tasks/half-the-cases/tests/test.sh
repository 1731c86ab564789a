#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
app="${APP_DIR:-/app}"
logs="${LOGS_DIR:-/logs}/verifier"
right=0
n=0
while read -r got; do
    n=$((n + 1))
    if [ "$got" = $((n * n)) ]; then right=$((right + 1)); echo "$n: right"; else echo "$n: wrong, $got"; fi
    sleep 1
done < "$app/squares.txt"
echo "{\"reward\": 0.$((right * 100 / 4)), \"cases\": $right}" > "$logs/reward.json"
