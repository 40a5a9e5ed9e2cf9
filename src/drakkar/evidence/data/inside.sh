#!/bin/sh
# From a node: which GPU device nodes the containers of one pod have, by their cgroup and their root directory, without
# entering any. POD_UID is the pod's; ROOT is another root directory, for tests. Prints one line per process found,
#     container <first pid> <cgroup>
# one per device node of it, `node <path> <major> <minor>`, `lib <path>` for NVIDIA's libraries among its mounts, and,
# for the whole machine, `gpu <minor> <uuid>` as the kernel driver names them.
ROOT=${ROOT:-}
uid=$POD_UID
other=$(echo "$uid" | tr - _)
[ -n "$uid" ] || { echo "POD_UID is not set" >&2; exit 2; }

for card in "$ROOT"/proc/driver/nvidia/gpus/*/information; do
    [ -r "$card" ] || continue
    awk -F': *' '/^GPU UUID/ {u=$2} /^Device Minor/ {m=$2} END {gsub(/[ \t]/, "", u); gsub(/[ \t]/, "", m); print "gpu", m, u}' "$card"
done

seen=" "
for process in "$ROOT"/proc/[0-9]*; do
    group=$(grep -m 1 -e "$uid" -e "$other" "$process/cgroup" 2> /dev/null) || continue
    group=${group##*:}
    case $seen in *" $group "*) continue ;; esac
    seen="$seen$group "
    echo "container $(basename "$process") $group"
    for node in "$process"/root/dev/nvidia* "$process"/root/dev/nvidia-caps/* "$process"/root/dev/dri/*; do
        [ -c "$node" ] || continue
        echo "node ${node#"$process"/root} $(stat -c '0x%t 0x%T' "$node" | while read -r a b; do echo $((a)) $((b)); done)"
    done
    awk '$5 ~ /libnvidia|libcuda|nvidia-smi/ {print "lib", $5}' "$process/mountinfo" 2> /dev/null
done
exit 0
