/* Hooks that ask the kernel or the driver: the params file (params.py) and GPU memory limits (limits.py). */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define PARAMS "/proc/driver/nvidia/params"
#define MIB ((uint64_t)1 << 20)
#define MOST_MIB (UINT64_MAX / MIB)

static const char *host_path(struct given *given, const char *path) {
    return text("%s%s", given->host_root && strcmp(given->host_root, "/") ? given->host_root : "", path);
}

/* Turns `ModifyDeviceFiles: 1` into 0; false where no line says 1. */
static bool switch_off(char *params) {
    bool changed = false;
    for (char *line = params; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *name = "ModifyDeviceFiles:";
        if (strncmp(line, name, strlen(name)))
            continue;
        char *value = line + strlen(name);
        value += strspn(value, " \t");
        if (*value == '1' && strspn(value + 1, " \t") == strcspn(value + 1, "\n")) {
            *value = '0';
            changed = true;
        }
    }
    return changed;
}

void disable_device_node_modification(struct state *state, struct given *given) {
    size_t length;
    const char *source = host_path(given, PARAMS);
    char *params = file_text(source, 1 << 20, &length);
    if (!params && errno != ENOENT)
        die("%s: %s", source, strerror(errno));
    if (!params || !switch_off(params))
        return;
    int root = root_open(state_root_path(state)), target = root_look(root, PARAMS);
    struct stat found, covering;
    if (target < 0)
        return;
    if (fstat(target, &found) || !S_ISREG(found.st_mode))
        die("%s of the container is no file", PARAMS);
    const char *name = fresh_name();
    root_write(root, text("/%s", name), params, length, 0444, 0755);
    int file = root_look(root, text("/%s", name));
    bool mounted = file >= 0 && !fstat(file, &covering) &&
                   !mount(text("/proc/self/fd/%d", file), text("/proc/self/fd/%d", target), NULL, MS_BIND, NULL);
    int error = errno;
    unlinkat(root, name, 0);
    if (!mounted)
        die("mount: %s", strerror(error));
    int covered = root_look(root, PARAMS); /* the old descriptor still shows what is below the mount */
    if (covered < 0 || fstat(covered, &found) || found.st_ino != covering.st_ino || found.st_dev != covering.st_dev)
        die("%s of the container changes all the time", PARAMS);
    if (mount(NULL, text("/proc/self/fd/%d", covered), NULL,
              MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
        die("mount: %s", strerror(errno));
}

static bool mebibytes(const char *name, const char *digits, uint64_t *value) {
    if (!digits)
        return false;
    errno = 0;
    *value = strtoull(digits, NULL, 10);
    if (!*digits || strspn(digits, "0123456789") != strlen(digits) || errno || *value > MOST_MIB)
        die("%s is '%s', not a number of MiB", name, digits);
    return true;
}

/* The sum of the shares that the container's hooks name for the GPU; only the runtime writes that list. */
static uint64_t granted(struct state *state, struct given *given) {
    struct json hooks, listed, hook = {0}, args;
    uint64_t own = 0, total = 0, one;
    bool found = false;
    if (given->gpu_id.count != 1)
        die("--limit is for one --gpu-id");
    mebibytes("--limit", given->limit, &own);
    if (!json_get(state_config(state), "hooks", &hooks) || !json_get(hooks, "createRuntime", &listed))
        return own;
    while (json_next(listed, &hook)) {
        struct json word = {0};
        const char *before = "", *gpu = "", *limit = NULL;
        bool ours = false;
        if (!json_get(hook, "args", &args))
            continue;
        while (json_next(args, &word)) {
            const char *each = json_text(word);
            each = each ? each : "";
            ours = ours || !strcmp(each, hook_name);
            if (!strcmp(before, "--gpu-id"))
                gpu = each;
            if (!strcmp(before, "--limit"))
                limit = each;
            before = each;
        }
        if (ours && limit && !strcmp(gpu, given->gpu_id.at[0]) && mebibytes("--limit", limit, &one)) {
            total = one > MOST_MIB - total ? MOST_MIB : total + one;
            found = true;
        }
    }
    return found ? total : own;
}

static const char *control_group(struct state *state, struct given *given) {
    size_t length;
    if (access(host_path(given, "/sys/fs/cgroup/cgroup.controllers"), F_OK))
        die("memory limits need control groups version 2, this host has version 1");
    char *table = file_text(host_path(given, text("/proc/%ld/cgroup", state->pid)), 1 << 20, &length);
    if (!table)
        die("cannot read the control group of process %ld: %s", state->pid, strerror(errno));
    for (char *line = strtok(table, "\n"); line; line = strtok(NULL, "\n"))
        if (!strncmp(line, "0::/", 4) && !strstr(text("%s/", line + 3), "/../"))
            return host_path(given, text("/sys/fs/cgroup%s", line + 3));
    die("process %ld has no control group of version 2 that is visible here", state->pid);
}

static const char *library(const char *driver_root) {
    static const char *const FOLDERS[] = {
        "usr/lib64/",
        "usr/lib/x86_64-linux-gnu/",
        "usr/lib/aarch64-linux-gnu/",
        "usr/lib/x86_64-linux-gnu/nvidia/current/",
        "usr/lib/aarch64-linux-gnu/nvidia/current/",
        "lib64/",
        "lib/x86_64-linux-gnu/",
        "lib/aarch64-linux-gnu/",
        "",
    };
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        const char *path = text("%s/%slibnvidia-ml.so.1", strcmp(driver_root, "/") ? driver_root : "", FOLDERS[i]);
        if (!access(path, F_OK))
            return path;
    }
    die("no libnvidia-ml.so.1 below %s", driver_root);
}

void apply_cuda_memory_limits(struct state *state, struct given *given) {
    uint64_t soft, hard = MOST_MIB;
    bool requested = mebibytes("NVIDIA_GPU_MEMORY_REQUEST", state_variable(state, "NVIDIA_GPU_MEMORY_REQUEST"), &soft);
    bool limited = mebibytes("NVIDIA_GPU_MEMORY_LIMIT", state_variable(state, "NVIDIA_GPU_MEMORY_LIMIT"), &hard);
    uint64_t share = given->limit ? granted(state, given) : MOST_MIB;
    if (!requested && !limited && !given->limit)
        return;
    for (int i = 0; i < given->gpu_id.count; i++)
        if (strspn(given->gpu_id.at[i], " \t\r\n") == strlen(given->gpu_id.at[i]))
            die("--gpu-id is empty");
    const char *bound = limited && hard <= share ? "NVIDIA_GPU_MEMORY_LIMIT" : "the claim's share";
    hard = hard < share ? hard : share;
    if (!requested)
        soft = hard;
    if (soft > hard)
        die("NVIDIA_GPU_MEMORY_REQUEST (%llu MiB) is more than %s (%llu MiB)", (unsigned long long)soft, bound,
            (unsigned long long)hard);
    const char *group = control_group(state, given);
    const char *nvml = library(given->driver_root && *given->driver_root ? given->driver_root : "/");
    /* A static program cannot load the driver's library: the program beside it, linked to the host's C library, does. */
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = length > 0 ? (self[length] = 0, strrchr(self, '/')) : NULL;
    if (!slash)
        die("cannot find my own folder");
    *slash = 0;
    char *words[MOST_VALUES + 8] = {text("%s/drakkar-nvml-limits", self), (char *)nvml, (char *)group,
                                    text("%llu", (unsigned long long)(soft == MOST_MIB ? UINT64_MAX : soft * MIB)),
                                    text("%llu", (unsigned long long)(hard == MOST_MIB ? UINT64_MAX : hard * MIB))};
    for (int i = 0; i < given->gpu_id.count; i++)
        words[5 + i] = (char *)given->gpu_id.at[i];
    execv(words[0], words);
    die("cannot run %s: %s", words[0], strerror(errno));
}
