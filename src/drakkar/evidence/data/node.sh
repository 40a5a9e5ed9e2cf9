#!/bin/sh
# What one node shows about its GPUs, as a tar stream on standard output: the files of nodes/<node>/ in a bundle.
# It runs with nothing of ours on the node (`ssh node sh -s < node.sh`), changes nothing, and needs sh, tar and coreutils;
# what is missing or may not be read is left out and said in notes.txt. ROOT is another root directory, for tests.
# DRAKKAR_LINES is how many lines of the journal are taken.
ROOT=${ROOT:-}
LINES_WANTED=${DRAKKAR_LINES:-2000}
LIMIT=16777216
umask 077
out=$(mktemp -d "${TMPDIR:-/tmp}/drakkar-node.XXXXXX") || exit 1
trap 'rm -rf "$out"' EXIT INT TERM

note() { echo "$*" >> "$out/notes.txt"; }
have() { command -v "$1" > /dev/null 2>&1; }

# run FILE COMMAND…: keeps the output, or notes why there is none. At most 20 s, since a sick GPU may never answer.
run() {
    file=$1; shift
    have "$1" || { note "$file: $1 is not on this node"; return; }
    if have timeout; then timeout 20 "$@" > "$out/$file" 2> "$out/.err"; else "$@" > "$out/$file" 2> "$out/.err"; fi
    status=$?
    [ $status -eq 0 ] || note "$file: \`$*\` ended with $status: $(head -c 200 "$out/.err" | tr '\n' ' ')"
    [ -s "$out/$file" ] || rm -f "$out/$file"
}

# copy FROM TO: a file of at most 16 MiB.
copy() {
    [ -e "$ROOT$1" ] || return
    [ -r "$ROOT$1" ] || { note "$2: $1 may not be read"; return; }
    mkdir -p "$(dirname "$out/$2")"
    head -c $LIMIT "$ROOT$1" > "$out/$2"
}

smi=nvidia-smi
have nvidia-smi || for place in /run/nvidia/driver /home/kubernetes/bin/nvidia /usr/local/nvidia; do
    for binary in "$ROOT$place/usr/bin/nvidia-smi" "$ROOT$place/bin/nvidia-smi"; do
        [ -x "$binary" ] && smi=$binary
    done
done
run nvidia-smi-L.txt "$smi" -L
run nvidia-smi-q.txt "$smi" -q
grep -q '^ *MIG ' "$out/nvidia-smi-L.txt" 2> /dev/null && {
    run mig-lgi.txt "$smi" mig -lgi
    run mig-lci.txt "$smi" mig -lci
}
{
    ls -l "$ROOT"/dev/nvidia* "$ROOT"/dev/nvidia-caps/* "$ROOT"/dev/dri/* 2> /dev/null
    ls -l "$ROOT"/dev/nvidia-caps-imex-channels 2> /dev/null
    ls -l "$ROOT"/run/nvidia/driver/usr/lib*/*/libnvidia-ml.so* "$ROOT"/usr/lib*/*/libnvidia-ml.so* \
        "$ROOT"/usr/lib64/libnvidia-ml.so* "$ROOT"/usr/lib*/*/libcuda.so* 2> /dev/null
    ls -ld "$ROOT"/run/nvidia/driver "$ROOT"/etc/cdi "$ROOT"/var/run/cdi 2> /dev/null
} | sed "s|$ROOT/|/|" > "$out/dev.txt"
[ -s "$out/dev.txt" ] || rm -f "$out/dev.txt"
copy /proc/driver/nvidia/version driver-version.txt
copy /proc/sys/kernel/random/boot_id boot-id.txt

for directory in /etc/cdi /var/run/cdi; do
    for file in "$ROOT$directory"/*.yaml "$ROOT$directory"/*.json; do
        [ -f "$file" ] && copy "$directory/$(basename "$file")" "cdi/$(basename "$file")"
    done
done

ls -l "$ROOT/etc/cdi" "$ROOT/var/run/cdi" 2> /dev/null | sed "s|$ROOT/|/|" > "$out/cdi.txt"
[ -s "$out/cdi.txt" ] || rm -f "$out/cdi.txt"

# The kubelet, and the runtime that it really uses: many nodes have two.
kubelet=""
for process in "$ROOT"/proc/[0-9]*; do
    case $(cat "$process/comm" 2> /dev/null) in
        kubelet) kubelet=$process; break ;;
        k3s | k3s-server | k3s-agent | rke2) kubelet=$process ;;
    esac
done
root=/var/lib/kubelet
endpoint=""
if [ -n "$kubelet" ]; then
    tr '\0' '\n' < "$kubelet/cmdline" > "$out/.cmdline" 2> /dev/null
    flag() { sed -n "s/^--$1=//p" "$out/.cmdline" | tail -n 1; }
    given=$(flag root-dir); [ -n "$given" ] && root=$given
    endpoint=$(flag container-runtime-endpoint)
    config=$(flag config)
    [ -z "$endpoint" ] && [ -n "$config" ] && endpoint=$(sed -n 's/^containerRuntimeEndpoint: *//p' "$ROOT$config" 2> /dev/null | tr -d '"' | tail -n 1)
    case $(cat "$kubelet/comm") in k3s* | rke2) [ -z "$endpoint" ] && endpoint=unix:///run/k3s/containerd/containerd.sock ;; esac
else
    note "runtime.txt: no kubelet runs here, or its process may not be seen"
fi
[ -n "$endpoint" ] || endpoint=unix:///run/containerd/containerd.sock
socket=${endpoint#unix://}

# Who listens on that socket: the inode in /proc/net/unix is an open file of the runtime.
server=""
inode=$(awk -v path="$socket" -v other="${socket#/var}" '$8 == path || $8 == other || $8 == "/var" path {print $7; exit}' "$ROOT/proc/net/unix" 2> /dev/null)
[ -n "$inode" ] && for process in "$ROOT"/proc/[0-9]*; do
    ls -l "$process/fd" 2> /dev/null | grep -q "socket:\[$inode\]" && { server=$process; break; }
done
{
    echo "kubelet: $([ -n "$kubelet" ] && basename "$kubelet" || echo none)"
    echo "kubelet-root: $root"
    echo "endpoint: $endpoint"
    [ -e "$ROOT$socket" ] && echo "socket: present" || echo "socket: absent"
    if [ -n "$server" ]; then
        echo "served-by: $(basename "$server") $(tr '\0' ' ' < "$server/cmdline")"
        echo "executable: $(readlink "$server/exe" 2> /dev/null)"
    fi
    for other in /run/containerd/containerd.sock /run/k3s/containerd/containerd.sock /run/crio/crio.sock; do
        [ -e "$ROOT$other" ] && echo "also: $other"
    done
} > "$out/runtime.txt"
# `config dump` of that very containerd, with the configuration it was started with.
binary=containerd
set --
if [ -n "$server" ]; then
    seen=$(readlink "$server/exe" 2> /dev/null)
    case $seen in */containerd) binary=$seen ;; esac
    file=$(tr '\0' '\n' < "$server/cmdline" | awk '/^(-c|--config)$/ {getline; print; exit} /^--config=/ {sub(/^--config=/, ""); print; exit}')
    [ -n "$file" ] && set -- --config "$file"
fi
case $endpoint in
    *crio*) run crio.toml crio config ;;
    *) run containerd.toml "$binary" "$@" config dump ;;
esac
run crictl-info.json crictl --runtime-endpoint "$endpoint" info

copy "$root/dra_manager_state" dra_manager_state
for plugin in "$ROOT$root"/plugins/*; do
    name=$(basename "$plugin")
    [ -f "$plugin/checkpoint.json" ] || continue
    copy "$root/plugins/$name/checkpoint.json" "checkpoints/$name.json"
    [ "$name" = gpu.nvidia.com ] && copy "$root/plugins/$name/checkpoint.json" checkpoint.json
done
ls -l "$ROOT$root/plugins" "$ROOT$root/plugins_registry" 2> /dev/null | sed "s|$ROOT/|/|" > "$out/plugins.txt"
[ -s "$out/plugins.txt" ] || rm -f "$out/plugins.txt"
run units.txt systemctl list-units --no-pager --plain --no-legend --type=service 'nvidia*' 'containerd*' 'kubelet*' 'k3s*' 'rke2*' 'crio*'
if have journalctl; then
    journalctl --no-pager -o short-iso -n "$LINES_WANTED" -u kubelet -u containerd -u k3s -u k3s-agent -u rke2-agent -u rke2-server -u crio \
        > "$out/journal.txt" 2> /dev/null
    journalctl --no-pager -o short-iso -k -n "$LINES_WANTED" --grep 'NVRM|Xid|nvidia' >> "$out/journal.txt" 2> /dev/null
    [ -s "$out/journal.txt" ] || rm -f "$out/journal.txt"
else
    note "journal.txt: journalctl is not on this node"
fi
rm -f "$out/.err" "$out/.cmdline"
tar -cf - -C "$out" .
