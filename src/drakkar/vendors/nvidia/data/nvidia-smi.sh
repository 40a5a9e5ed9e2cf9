#!/bin/sh
# nvidia-smi of a simulated machine. POSIX sh and ls: images have no Python.
#
# It believes nothing but what was injected into this container: the device nodes, by their numbers, each of them
# opened (EPERM: the device cgroup refuses it; ENXIO: allowed, and no hardware behind it, as simulation wants), the
# driver library, and the file that says what the hardware behind a number is. The environment is ignored.
LC_ALL=C
export LC_ALL
set -f

root=
case $0 in */*) root=${0%/*} root=${root%/bin} root=${root%/usr} ;; esac
data=$root/usr/share/nvidia-smi/devices
newline='
'

# --- what the container was given -----------------------------------------------------------------------------------

# The nodes of folder $1: lines "major minor access path" into $nodes. A regular file of one line "c 195 0" stands
# in for a node where the runtime could not make one; its fourth word is the access granted, "none" for none at all.
list_nodes() {
    nodes=
    saved=$IFS
    IFS=$newline
    for line in $(ls -ln "$1/" 2>/dev/null); do
        IFS=$saved
        # shellcheck disable=SC2086
        set -- "$1" $line
        path=$1/${line##* }
        case $2 in
            c*)
                case $6 in
                    *,?*) nodes="$nodes${6%%,*} ${6#*,} node $path$newline" ;;
                    *) nodes="$nodes${6%,} $7 node $path$newline" ;;
                esac ;;
            -*)
                case $path in
                    */nvidia*)
                        kind='' major='' minor='' access=''
                        read -r kind major minor access <"$path" 2>/dev/null
                        [ "$kind" = c ] && nodes="$nodes$major $minor ${access:-stand-in} $path$newline" ;;
                esac ;;
        esac
        IFS=$newline
    done
    IFS=$saved
}

# Opens every node of $nodes and calls "$1 major minor path" for each that opened or has no driver behind it (ENXIO);
# those that the cgroup refuses are said and counted. One subshell for all: a process each would be slow.
open_nodes() {
    visitor=$1
    answers=$(
        while read -r major minor access path; do
            [ "$access" = node ] && { true <"$path"; } 2>&1
            echo "=$major $minor $access $path"
        done <<END
$nodes
END
    )
    saved=$IFS
    IFS=$newline
    message=''
    for line in $answers; do
        case $line in
            =*)
                IFS=' '
                # shellcheck disable=SC2086
                set -- ${line#=}
                IFS=$newline
                [ $# -ge 4 ] || continue
                path=${line#=* * * }
                verdict=ok
                case $message in
                    *"not permitted"* | *"ermission denied"*) verdict=refused ;;
                    *"No such file"*) verdict=gone ;;
                esac
                case $3 in denied | none) verdict=refused ;; esac
                "$visitor" "$1" "$2" "$path"
                message='' ;;
            *) message=$message$line ;;
        esac
    done
    IFS=$saved
}

say_refused() {
    echo "nvidia-smi: $1 ($2:$3) cannot be opened: the device cgroup of this container does not allow it" >&2
}

survey_gpu() {
    [ "$1" = "$gpu_major" ] && [ "$2" != 254 ] || return 0
    case $verdict:$2 in
        refused:*)
            say_refused "${3#"$root"}" "$1" "$2"
            refused=$((refused + 1))
            [ "$2" = 255 ] && control=refused ;;
        ok:255) control=ok ;;
        ok:*) gpus="$gpus$2 " ;;
    esac
    return 0
}

survey_capability() {
    [ "$1" = "$caps_major" ] || return 0
    case $verdict in
        refused) say_refused "${3#"$root"}" "$1" "$2" ;;
        ok) capabilities="$capabilities$2 " ;;
    esac
}

survey() {
    gpus=' ' capabilities=' ' control=missing refused=0
    list_nodes "$root/dev"
    open_nodes survey_gpu
    if [ -d "$root/dev/nvidia-caps" ]; then
        list_nodes "$root/dev/nvidia-caps"
        open_nodes survey_capability
    fi
}

# --- start: the library, the driver, the nodes ----------------------------------------------------------------------

no_library() {
    echo "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system."
    exit 12
}

# What the head of the file says about the machine, into $found.
fact() {
    found=${content#*"v|$1|"}
    found=${found%%"$newline"*}
}

start() {
    [ -r "$data" ] || no_library
    content=$(cat "$data")
    fact driver; driver=$found
    fact cuda; cuda=$found
    fact nvml; nvml=$found
    fact library; library=$found
    fact nodes; gpu_major=$found
    fact caps; caps_major=$found
    fact loaded; loaded=$found
    if [ ! -e "$root$library" ]; then
        set +f
        for found in "$root${library%"$driver"}"*; do
            set -f
            [ -e "$found" ] || no_library
            found=${found##*.so.}
            echo "Failed to initialize NVML: Driver/library version mismatch"
            echo "NVML library version: ${found%.*}"
            exit 18
        done
    fi
    if [ "$loaded" != yes ]; then
        echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."
        exit 9
    fi
    survey
    if [ "$gpus" = ' ' ] && [ "$refused" = 0 ]; then
        echo "No devices were found"
        exit 6
    fi
    if [ "$control" != ok ] || [ "$gpus" = ' ' ]; then
        echo "Failed to initialize NVML: Unknown Error"
        exit 255
    fi
}

# --- walking the visible GPUs ---------------------------------------------------------------------------------------

# Calls "$1 index" for each visible and selected GPU, with its figures in $f_<name>, units in $u_<name>, the lines of
# its -q page in $page and its visible MIG devices in $migs. The file is taken apart in memory: `read` costs a system
# call for each character.
each_gpu() {
    callback=$1 index=-1 current='' shown=0
    saved=$IFS
    IFS=$newline
    for entry in $content; do
        case $entry in
            gpu\|*)
                IFS=$saved
                [ -n "$current" ] && visit "$callback"
                IFS='|'
                # shellcheck disable=SC2086
                set -- $entry
                current='' page='' migs=''
                case $gpus in
                    *" $2 "*) current=$2 state=$3 index=$((index + 1)) ;;
                esac ;;
            f\|*)
                if [ -n "$current" ]; then
                    IFS='|'
                    # shellcheck disable=SC2086
                    set -- $entry
                    eval "f_$2=\$3 u_$2=\${4-}"
                fi ;;
            q\|*) [ -n "$current" ] && page="$page${entry#q|}$newline" ;;
            mig\|*)
                if [ -n "$current" ]; then
                    IFS='|'
                    # shellcheck disable=SC2086
                    set -- $entry
                    case $capabilities in
                        *" $2 "*) case $capabilities in *" $3 "*) migs="$migs${entry#mig|"$2"|"$3"|}$newline" ;; esac ;;
                    esac
                fi ;;
        esac
        IFS=$newline
    done
    IFS=$saved
    [ -n "$current" ] && visit "$callback"
    if [ "$shown" = 0 ]; then
        echo "No devices were found"
        exit 6
    fi
}

# A container's share of the GPU's memory, as a hook noted it in this container; a real driver would know it itself.
own_limit() {
    f_memory_limit='[N/A]' u_memory_limit=MiB
    [ -r "$root/etc/nvidia-smi/limits/$f_uuid" ] && read -r f_memory_limit <"$root/etc/nvidia-smi/limits/$f_uuid"
    return 0
}

visit() {
    own_limit
    if [ -n "$selection" ]; then
        case ",$selection," in
            *",$index,"* | *",$f_uuid,"* | *",$f_pci_bus_id,"* | *",$f_serial,"*) ;;
            *) return 0 ;;
        esac
    fi
    shown=$((shown + 1))
    if [ "$state" = lost ]; then
        bus=${f_pci_bus_id#0000}
        echo "Unable to determine the device handle for GPU$bus: Unknown Error"
        [ "$mode" = list ] && echo "No devices were found"
        exit 15
    fi
    "$1" "$index"
}

# --- output ---------------------------------------------------------------------------------------------------------

list_gpu() {
    echo "GPU $1: $f_name (UUID: $f_uuid)"
    number=0
    while IFS='|' read -r gi ci profile uuid rest; do
        [ -n "$gi" ] || continue
        printf '  MIG %-11s Device %2d: (UUID: %s)\n' "$profile" "$number" "$uuid"
        number=$((number + 1))
    done <<END
$migs
END
}

table_gpu() {
    name=$f_name
    [ "${#name}" -gt 27 ] && name=$(printf '%.24s...' "$name")
    ecc=$f_ecc_errors_uncorrected_volatile_total utilization="$f_utilization_gpu%" mig=$f_mig_mode_current
    [ "$f_mig_mode_current" = Enabled ] && ecc=On utilization=N/A
    [ "$ecc" = '[N/A]' ] && ecc=N/A
    [ "$mig" = '[N/A]' ] && mig=N/A
    printf '| %3s  %-27s %5s  |   %16s Off | %20s |\n' "$1" "$name" On "$f_pci_bus_id" "$ecc"
    printf '| %3s  %4s    %-2s%16s / %5s | %10s / %9s | %7s %12s |\n' N/A "${f_temperature_gpu}C" "$f_pstate" \
        "${f_power_draw%.*}W" "${f_power_limit%.*}W" "${f_memory_used}MiB" "${f_memory_total}MiB" "$utilization" Default
    printf '| %39s | %22s | %20s |\n' '' '' "$mig"
    echo "+-----------------------------------------+------------------------+----------------------+"
    if [ "$mig" = Enabled ]; then
        number=0
        while IFS='|' read -r gi ci profile uuid memory bar sm ce enc dec ofa jpg rest; do
            [ -n "$gi" ] || continue
            mig_rows="$mig_rows$(printf '|%3s %4s %3s %3s  |%19s / %8s    | %-3s%6s |%3s %3s %4s %4s %4s |' "$1" "$gi" \
                "$ci" "$number" 0MiB "${memory}MiB" "$sm" 0 "$ce" "$enc" "$dec" "$ofa" "$jpg")$newline"
            mig_rows="$mig_rows$(printf '|%18s|%19s / %8s    |%11s|%23s|' '' 0MiB "${bar}MiB" '' '')$newline"
            mig_rows="$mig_rows+------------------+----------------------------------+-----------+-----------------------+$newline"
            number=$((number + 1))
        done <<END
$migs
END
        mig_any=yes
    fi
}

print_table() {
    mig_rows='' mig_any=no
    body=$(each_gpu table_gpu && printf '%s' "@@$mig_any@@$mig_rows")
    code=$?
    [ "$code" = 0 ] || { echo "$body"; exit "$code"; }
    rows=${body%%@@*}
    rest=${body#*@@}
    printf '%s       \n' "$(date '+%a %b %e %H:%M:%S %Y')"
    echo "+-----------------------------------------------------------------------------------------+"
    printf '| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n' "$driver" "$driver" "$cuda"
    echo "+-----------------------------------------+------------------------+----------------------+"
    echo "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |"
    echo "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |"
    echo "|                                         |                        |               MIG M. |"
    echo "|=========================================+========================+======================|"
    printf '%s' "$rows"
    case $rest in
        yes@@*)
            echo
            echo "+-----------------------------------------------------------------------------------------+"
            echo "| MIG devices:                                                                            |"
            echo "+------------------+----------------------------------+-----------+-----------------------+"
            echo "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |"
            echo "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |"
            echo "|                  |                                  |        ECC|                       |"
            echo "|==================+==================================+===========+=======================|"
            rest=${rest#yes@@}
            if [ -n "$rest" ]; then
                printf '%s\n' "$rest"
            else
                echo "|  No MIG devices found                                                                   |"
                echo "+-----------------------------------------------------------------------------------------+"
            fi ;;
    esac
    echo
    echo "+-----------------------------------------------------------------------------------------+"
    echo "| Processes:                                                                              |"
    echo "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |"
    echo "|        ID   ID                                                               Usage      |"
    echo "|=========================================================================================|"
    echo "|  No running processes found                                                             |"
    echo "+-----------------------------------------------------------------------------------------+"
}

count_gpu() { total=$((total + 1)); }

# One CSV line of the asked-for fields; with "header" for $1 the line of their names.
csv_gpu() {
    line='' names=$fields,
    while [ -n "$names" ]; do
        name=${names%%,*} names=${names#*,}
        name=${name# }
        case $name in
            gpu_name) name=name ;; gpu_uuid) name=uuid ;; gpu_bus_id) name=pci.bus_id ;; gpu_serial) name=serial ;;
            temperature_gpu) name=temperature.gpu ;;
        esac
        case $name in
            index) value=$1 unit='' ;;
            count) value=$total unit='' ;;
            timestamp) value=$(date '+%Y/%m/%d %H:%M:%S.000') unit='' ;;
            '' | *[!A-Za-z0-9._]*) bad_field "$name" ;;
            *)
                variable=$name
                while :; do
                    case $variable in *.*) variable=${variable%%.*}_${variable#*.} ;; *) break ;; esac
                done
                eval "value=\${f_$variable-} unit=\${u_$variable-} known=\${f_$variable+yes}"
                [ "$known" = yes ] || bad_field "$name" ;;
        esac
        if [ "$1" = header ]; then
            value=$name
            [ -n "$unit" ] && value="$name [$unit]"
        elif [ -n "$unit" ] && [ "$nounits" = no ] && [ "$value" != '[N/A]' ]; then
            value="$value $unit"
        fi
        line=${line:+$line, }$value
    done
    if [ "$1" != header ] && [ "$header" = yes ]; then
        row=$line
        csv_gpu header
        header=no
        line=$row
    fi
    printf '%s\n' "$line"
}

bad_field() {
    echo "Field \"$1\" is not a valid field to query."
    echo
    exit 2
}

query_page() {
    total=0
    each_gpu count_gpu
    echo
    echo "==============NVSMI LOG=============="
    echo
    printf '%-55s: %s\n' Timestamp "$(date '+%a %b %e %H:%M:%S %Y')" 'Driver Version' "$driver" 'CUDA Version' "$cuda"
    echo
    printf '%-55s: %s\n' 'Attached GPUs' "$total"
    each_gpu page_gpu
}

page_gpu() {
    echo "GPU $f_pci_bus_id"
    printf '%s' "${page%%@mig*}"
    page_migs
    printf '%s\n' "${page#*@mig"$newline"}"
}

page_migs() {
    number=0
    while IFS='|' read -r gi ci profile uuid memory bar sm ce enc dec ofa jpg rest; do
        [ -n "$gi" ] || continue
        echo "    MIG Device"
        printf '%-55s: %s\n' "        Index" "$number" "        GPU Instance ID" "$gi" "        Compute Instance ID" "$ci"
        echo "        Device Attributes"
        echo "            Shared"
        printf '%-55s: %s\n' "                Multiprocessor count" "$sm" "                Copy Engine count" "$ce" \
            "                Encoder count" "$enc" "                Decoder count" "$dec" \
            "                OFA count" "$ofa" "                JPG count" "$jpg"
        echo "        Shared FB Memory Usage"
        printf '%-55s: %s\n' "            Total" "$memory MiB" "            Reserved" "0 MiB" "            Used" "0 MiB" \
            "            Free" "$memory MiB"
        echo "        Shared BAR1 Memory"
        printf '%-55s: %s\n' "            Total" "$bar MiB" "            Used" "0 MiB" "            Free" "$bar MiB"
        number=$((number + 1))
    done <<END
$migs
END
}

usage() {
    cat <<END
NVIDIA System Management Interface -- of a simulated machine

nvidia-smi [OPTION]...
    -L, --list-gpus          Display a list of the GPUs in this container.
    -q, --query              Display GPU information.
    -i, --id=ID[,ID]         Target specific GPUs: index, UUID, serial number or bus id.
    --query-gpu=FIELD[,...]  Information about GPUs, with --format=csv[,noheader][,nounits].
    --version                Print version information.
END
}

invalid() {
    echo "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."
    echo "$1" >&2
    exit 2
}

# --- arguments ------------------------------------------------------------------------------------------------------

mode=table selection='' fields='' format=''
while [ $# -gt 0 ]; do
    case $1 in
        -L | --list-gpus) mode=list ;;
        -q | --query) mode=page ;;
        -h | --help) usage; exit 0 ;;
        --version) mode=version ;;
        -i | --id) [ $# -gt 1 ] || invalid "$1 needs a GPU"; selection=$2; shift ;;
        --id=*) selection=${1#*=} ;;
        --query-gpu=*) mode=csv fields=${1#*=} ;;
        --query-gpu) [ $# -gt 1 ] || invalid "$1 needs a list of fields"; mode=csv fields=$2; shift ;;
        --query-compute-apps=*) mode=apps fields=${1#*=} ;;
        --format=*) format=${1#*=} ;;
        --format) [ $# -gt 1 ] || invalid "$1 needs a format"; format=$2; shift ;;
        *) invalid "nvidia-smi of a simulated machine does not know: $1" ;;
    esac
    shift
done
header=yes nounits=no
case $mode in
    csv | apps)
        case ",$format," in *,csv,*) ;; *) echo 'Output format "--format=csv" is required.'; exit 2 ;; esac
        case ",$format," in *,noheader,*) header=no ;; esac
        case ",$format," in *,nounits,*) nounits=yes ;; esac ;;
esac

start
case $mode in
    list) each_gpu list_gpu ;;
    table) print_table ;;
    page) query_page ;;
    csv)
        total=0
        each_gpu count_gpu
        each_gpu csv_gpu ;;
    apps)
        [ "$header" = yes ] && echo "$fields" | sed -e 's/,/, /g' -e 's/used_memory/used_gpu_memory [MiB]/' ;;
    version)
        printf '%-20s: %s\n' 'NVIDIA-SMI version' "$driver" 'NVML version' "$nvml" 'DRIVER version' "$driver" 'CUDA Version' "$cuda" ;;
esac
exit 0
