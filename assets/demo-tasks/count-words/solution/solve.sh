#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
cd "${APP_DIR:-/app}" || exit 1
printf 'the quick brown fox\njumps over\nthe lazy dog\n' > text.txt
for pass in 1 2 3 4; do
    echo "reading text.txt, pass $pass"
    sleep 1
done
n=0
for word in $(cat text.txt); do n=$((n + 1)); done
echo "$n" > answer.txt
echo "wrote $n"
