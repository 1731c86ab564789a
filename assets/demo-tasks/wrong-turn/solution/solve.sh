#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
cd "${APP_DIR:-/app}" || exit 1
printf 'one\ntwo\nthree\n' > lines.txt
echo "sorting instead of reversing"
sleep 4
sort lines.txt > reversed.txt
cat reversed.txt
