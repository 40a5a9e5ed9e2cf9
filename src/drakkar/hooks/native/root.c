/* The file system of a container without ever leaving it: see root.py for why it is walked like this. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_LINKS 40
#define MOST_DEPTH 4096
#define ATTEMPTS 100
#define AS_PATH (O_PATH | O_NOFOLLOW | O_CLOEXEC)

int root_open(const char *path) {
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat own, host;
    if (fd < 0 || fstat(fd, &own) || stat("/", &host))
        die("cannot open the container's root %s: %s", path, strerror(errno));
    if (own.st_dev == host.st_dev && own.st_ino == host.st_ino)
        die("the container's root %s is the host's own", path);
    return fd;
}

/* A descriptor of `name` in `directory`, a link's own if it is one; the directory is made if `make` and missing. */
static int enter(int directory, const char *name, mode_t make) {
    for (int i = 0; i < ATTEMPTS; i++) {
        int fd = openat(directory, name, AS_PATH);
        if (fd >= 0 || errno != ENOENT || !make)
            return fd;
        if (mkdirat(directory, name, make) && errno != EEXIST)
            return -1;
    }
    die("%s changes all the time", name);
}

static char *link_text(int fd, const char *name) {
    size_t room = 8192;
    char *target = malloc(room);
    ssize_t length = target ? readlinkat(fd, name, target, room - 1) : -1;
    if (length < 0) {
        free(target);
        return NULL;
    }
    target[length] = 0;
    return target;
}

static int walk(int root, const char *path, mode_t make) {
    static int way[MOST_DEPTH];
    int depth = 0, links = 0, error = 0;
    char *rest = strdup(path);
    if (!rest || (way[depth++] = dup(root)) < 0)
        die("no memory");
    while (!error && *rest) {
        char *name = rest, *next = strchrnul(rest, '/');
        bool last = !*next;
        if (!last)
            *next++ = 0;
        if (!*name || !strcmp(name, ".")) {
            rest = next;
            continue;
        }
        if (!strcmp(name, "..")) {
            if (depth > 1)
                close(way[--depth]);
            rest = next;
            continue;
        }
        int fd = enter(way[depth - 1], name, make);
        struct stat found;
        if (fd < 0 || fstat(fd, &found)) {
            error = errno;
        } else if (S_ISLNK(found.st_mode)) {
            char *target = link_text(fd, "");
            close(fd);
            if (!target)
                error = errno;
            else if (++links > MOST_LINKS)
                error = ELOOP;
            while (!error && *target == '/' && depth > 1)
                close(way[--depth]);
            rest = last ? target : text("%s/%s", target, next);
        } else if (!last && !S_ISDIR(found.st_mode)) {
            close(fd);
            error = ENOTDIR;
        } else if (depth == MOST_DEPTH) {
            close(fd);
            error = ENAMETOOLONG;
        } else {
            way[depth++] = fd;
            rest = next;
        }
    }
    int result = error ? -1 : way[--depth];
    while (depth > 0)
        close(way[--depth]);
    errno = error;
    return result;
}

int root_look(int root, const char *path) {
    int fd = walk(root, path, 0);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
        die("%s: %s", path, strerror(errno));
    return fd;
}

int root_directory(int root, const char *path, mode_t mode) {
    struct stat found;
    int fd = walk(root, path, mode);
    if (fd >= 0 && !fstat(fd, &found) && !S_ISDIR(found.st_mode)) {
        close(fd);
        fd = -1;
        errno = ENOTDIR;
    }
    if (fd < 0)
        die("%s: %s", path, strerror(errno));
    return fd;
}

/* The directory of `path`, made where missing, and the name in it. */
static int parent(int root, const char *path, mode_t mode, char **name) {
    char *head = strdup(path), *slash;
    size_t length = strlen(head);
    while (length > 0 && head[length - 1] == '/')
        head[--length] = 0;
    slash = strrchr(head, '/');
    *name = strdup(slash ? slash + 1 : head);
    if (slash)
        *slash = 0;
    if (!**name || !strcmp(*name, ".") || !strcmp(*name, ".."))
        die("'%s' names no file", path);
    return root_directory(root, slash ? head : "", mode);
}

char *fresh_name(void) {
    unsigned char noise[8];
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, noise, sizeof noise) != sizeof noise)
        die("no random numbers: %s", strerror(errno));
    close(fd);
    char *name = text(".drakkar-%02x%02x%02x%02x%02x%02x%02x%02x", noise[0], noise[1], noise[2], noise[3], noise[4],
                      noise[5], noise[6], noise[7]);
    return name;
}

static void replace(int directory, const char *fresh, const char *name) {
    for (int i = 0; i < ATTEMPTS; i++) {
        if (!renameat(directory, fresh, directory, name))
            return;
        if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST)
            break;
        if (unlinkat(directory, name, AT_REMOVEDIR) && errno != ENOENT && errno != ENOTDIR)
            break;
    }
    int error = errno;
    unlinkat(directory, fresh, 0);
    die("%s: %s", name, strerror(error));
}

void root_link(int root, const char *target, const char *path) {
    char *name, *fresh = fresh_name();
    int directory = parent(root, path, 0755, &name);
    char *present = link_text(directory, name);
    if (!present || strcmp(present, target)) {
        if (symlinkat(target, directory, fresh))
            die("%s: %s", path, strerror(errno));
        replace(directory, fresh, name);
    }
    close(directory);
}

void root_write(int root, const char *path, const char *data, size_t length, mode_t mode, mode_t directories) {
    char *name, *fresh = fresh_name();
    int directory = parent(root, path, directories, &name);
    int fd = openat(directory, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool written = fd >= 0;
    for (ssize_t done; written && length > 0; data += done, length -= done)
        written = (done = write(fd, data, length)) > 0;
    if (!written || fchmod(fd, mode) || close(fd)) {
        int error = errno;
        unlinkat(directory, fresh, 0);
        die("%s: %s", path, strerror(error));
    }
    replace(directory, fresh, name);
    close(directory);
}
