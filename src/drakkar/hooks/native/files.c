/* Hooks that only make or change files of the container: see files.py. */
#include "hook.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define COMPAT "/usr/local/cuda/compat"
#define PROFILE "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"

void create_symlinks(struct state *state, struct given *given) {
    for (int i = 0; i < given->link.count; i++) {
        const char *colons = strstr(given->link.at[i], "::");
        if (!colons || colons == given->link.at[i] || !colons[2])
            die("--link '%s' is not target::link", given->link.at[i]);
    }
    if (given->link.count == 0)
        return;
    int root = root_open(state_root_path(state));
    for (int i = 0; i < given->link.count; i++) {
        const char *both = given->link.at[i], *colons = strstr(both, "::");
        root_link(root, text("%.*s", (int)(colons - both), both), colons + 2);
    }
}

void apply_mode(struct state *state, struct given *given) {
    const char *digits = given->mode ? given->mode : "";
    size_t length = strlen(digits);
    if (length < 1 || length > 5 || strspn(digits, "01234567") != length || strtoul(digits, NULL, 8) > 07777)
        die("--mode '%s' is not an octal mode", digits);
    mode_t mode = strtoul(digits, NULL, 8);
    for (int i = 0; i < given->path.count; i++)
        if (strspn(given->path.at[i], " \t\r\n") == strlen(given->path.at[i]))
            die("--path is empty");
    if (given->path.count == 0)
        return;
    int root = root_open(state_root_path(state));
    for (int i = 0; i < given->path.count; i++) {
        struct stat found;
        int fd = root_look(root, given->path.at[i]);
        if (fd < 0)
            continue;
        if (fstat(fd, &found))
            die("%s: %s", given->path.at[i], strerror(errno));
        if (!S_ISDIR(found.st_mode) && found.st_nlink > 1 && (found.st_mode & 07777) != mode)
            fprintf(stderr, "drakkar hook chmod: %s has other names, left alone\n", given->path.at[i]);
        else if ((found.st_mode & 07777) != mode && chmod(text("/proc/self/fd/%d", fd), mode) && errno != EPERM &&
                 errno != EACCES)
            die("%s: %s", given->path.at[i], strerror(errno));
        close(fd);
    }
}

static DIR *directory(int root, const char *path) {
    int fd = root_look(root, path);
    int open_fd = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    if (open_fd < 0 && fd >= 0 && errno != ENOTDIR)
        die("%s: %s", path, strerror(errno));
    return open_fd < 0 ? NULL : fdopendir(open_fd);
}

/* The branch of `libcuda.so.<branch>.<more>`, -1 where the name is another. */
static long compat_branch(const char *name) {
    const char *prefix = "libcuda.so.";
    if (strncmp(name, prefix, strlen(prefix)))
        return -1;
    name += strlen(prefix);
    size_t digits = strspn(name, "0123456789");
    if (!digits || name[digits] != '.' || !name[digits + 1] || name[digits + 1 + strspn(name + digits + 1, "0123456789.")])
        return -1;
    return strtol(name, NULL, 10);
}

void enable_cuda_compat(struct state *state, struct given *given) {
    const char *host = given->host_driver_version ? given->host_driver_version : "";
    if (!*host)
        return;
    size_t digits = strspn(host, "0123456789");
    if (!digits || (host[digits] && host[digits] != '.'))
        die("--host-driver-version '%s' is no version", host);
    int root = root_open(state_root_path(state));
    if (root_look(root, "/etc/ld.so.cache") < 0)
        return;
    DIR *entries = directory(root, COMPAT);
    long branch = -1;
    int count = 0;
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (compat_branch(entry->d_name) >= 0) {
            branch = compat_branch(entry->d_name);
            count++;
        }
    if (count == 1 && branch > strtol(host, NULL, 10))
        root_write(root, "/etc/ld.so.conf.d/00-compat-drakkar.conf", COMPAT "\n", strlen(COMPAT) + 1, 0644, 0755);
}

void update_application_profile(struct state *state, struct given *given) {
    (void)given;
    int root = root_open(state_root_path(state));
    DIR *entries = directory(root, "/dev");
    uint64_t mask = 0;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        struct stat found;
        const char *number = entry->d_name + 6;
        if (strncmp(entry->d_name, "nvidia", 6) || !*number || strspn(number, "0123456789") != strlen(number))
            continue;
        if (!fstatat(dirfd(entries), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) && S_ISCHR(found.st_mode) &&
            minor(found.st_rdev) < 64)
            mask |= (uint64_t)1 << minor(found.st_rdev);
    }
    if (mask) {
        char *profile = text("{\"profiles\":[{\"name\":\"_container_\",\"settings\":[\"EGLVisibleDGPUDevices\",0x%llx]}],"
                             "\"rules\":[{\"pattern\":[],\"profile\":\"_container_\"}]}",
                             (unsigned long long)mask);
        root_write(root, PROFILE, profile, strlen(profile), 0444, 0555);
    }
}
