#!/bin/sh
# Directories: as variables on this machine, at their usual places in a container.
cd "${APP_DIR:-/app}" || exit 1
cat > sum.sh <<'END'
i=1; s=0
while [ "$i" -lt 10 ]; do s=$((s + i)); i=$((i + 1)); done
echo "$s"
END
echo "as it was: $(sh sum.sh)"
sleep 3
echo "the last number is left out"
sleep 2
cat > sum.sh <<'END'
i=1; s=0
while [ "$i" -le 10 ]; do s=$((s + i)); i=$((i + 1)); done
echo "$s"
END
echo "as it is now: $(sh sum.sh)"
