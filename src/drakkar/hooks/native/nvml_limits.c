/* drakkar-nvml-limits LIBRARY CGROUP SOFT HARD GPU…: one call of NVML per GPU. Linked dynamically, since a static program
 * cannot load the driver's library; started by drakkar-hook only. nvmlDeviceSetMemoryLimits_v1: driver branch R615 on. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct limits {
    const char *path;
    unsigned long long soft, hard;
};

static int failed(const char *call, const char *gpu, int code) {
    if (code != 0)
        fprintf(stderr, "drakkar hook apply-cuda-memory-limits: %s%s%s failed with NVML code %d\n", call, *gpu ? " " : "", gpu,
                code);
    return code;
}

int main(int count, char **words) {
    if (count < 5)
        return 2;
    void *nvml = dlopen(words[1], RTLD_NOW);
    if (!nvml) {
        fprintf(stderr, "drakkar hook apply-cuda-memory-limits: cannot load %s: %s\n", words[1], dlerror());
        return 1;
    }
    int (*start)(void), (*stop)(void), (*by_uuid)(const char *, void **), (*set)(void *, struct limits *);
    *(void **)&start = dlsym(nvml, "nvmlInit_v2");
    *(void **)&stop = dlsym(nvml, "nvmlShutdown");
    *(void **)&by_uuid = dlsym(nvml, "nvmlDeviceGetHandleByUUID");
    *(void **)&set = dlsym(nvml, "nvmlDeviceSetMemoryLimits_v1");
    if (!start || !stop || !by_uuid || !set) {
        fprintf(stderr, "drakkar hook apply-cuda-memory-limits: %s has no memory limits: a driver of branch R615 or newer"
                        " is needed\n", words[1]);
        return 1;
    }
    if (failed("nvmlInit", "", start()))
        return 1;
    int status = 0;
    for (int i = 5; i < count && !status; i++) {
        void *handle = NULL;
        struct limits limits = {words[2], strtoull(words[3], NULL, 10), strtoull(words[4], NULL, 10)};
        if (failed("nvmlDeviceGetHandleByUUID", words[i], by_uuid(words[i], &handle)) ||
            failed("nvmlDeviceSetMemoryLimits", words[i], set(handle, &limits)))
            status = 1;
    }
    stop();
    return status;
}
