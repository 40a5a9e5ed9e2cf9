/* Runs the host's ldconfig over the container's libraries, confined: see ldcache.py. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 120

static const char *const CANDIDATES[] = {"/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig"};

/* A name for the file that two calls with the same folders share: FNV-1a. */
static uint64_t digest(const char *data) {
    uint64_t value = 14695981039346656037u;
    for (; *data; data++)
        value = (value ^ (unsigned char)*data) * 1099511628211u;
    return value;
}

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape(char *at) {
    char *to = at;
    for (; *at; at++) {
        if (at[0] == '\\' && at[1] && at[2] && at[3]) {
            *to++ = (at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0');
            at += 3;
        } else {
            *to++ = *at;
        }
    }
    *to = 0;
}

/* Unmounts procfs below the root, the last mounted first: /proc/1/root would lead out of every chroot. */
static bool hide_procfs(const char *root) {
    size_t length, prefix = strlen(root), count = 0;
    char *table = file_text("/proc/self/mountinfo", 64 << 20, &length), *line_end, **points;
    if (!table || !(points = calloc(length / 16 + 1, sizeof *points)))
        return false;
    for (char *line = table; *line; line = line_end) {
        char point[PATH_MAX * 4 + 1], kind[64];
        line_end = strchrnul(line, '\n');
        if (*line_end)
            *line_end++ = 0;
        char *separator = strstr(line, " - ");
        if (!separator || sscanf(line, "%*s %*s %*s %*s %16384s", point) != 1 || sscanf(separator, " - %63s", kind) != 1)
            continue;
        unescape(point);
        if (!strcmp(kind, "proc") && !strncmp(point, root, prefix) && point[prefix] == '/')
            points[count++] = strdup(point);
    }
    while (count > 0)
        if (umount2(points[--count], MNT_DETACH | UMOUNT_NOFOLLOW))
            return false;
    return true;
}

static bool drop_capabilities(void) {
    for (int capability = 0; capability < 64; capability++)
        if (capability != 1 && capability != 2 && capability != 3 && capability != 18) /* DAC_*, FOWNER, SYS_CHROOT */
            prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

/* ldconfig writes to aux-cache~ without looking what that is: it gets an empty folder. */
static bool cover_auxiliary(int root) {
    int folder = root_look(root, "/var/cache/ldconfig");
    return folder < 0 || !mount("tmpfs", text("/proc/self/fd/%d", folder), "tmpfs", 0, "mode=0700");
}

static __attribute__((noreturn)) void confine_and_execute(char **arguments, int root, const char *path) {
    char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    int nothing = open("/dev/null", O_RDONLY);
    if (!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) && hide_procfs(path) &&
        cover_auxiliary(root) && nothing >= 0 &&
        dup2(nothing, 0) == 0 && fcntl(root, F_SETFD, 0) == 0 && !chdir("/") && drop_capabilities()) {
        alarm(SECONDS);
        execve(arguments[0], arguments, environment);
    }
    fprintf(stderr, "cannot run %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

static void run(char **arguments, int root, const char *path) {
    char real[PATH_MAX];
    int status = 0;
    if (!realpath(path, real))
        die("%s: %s", path, strerror(errno));
    pid_t child = fork();
    if (child == 0)
        confine_and_execute(arguments, root, real);
    if (child < 0 || waitpid(child, &status, 0) < 0)
        die("cannot run %s: %s", arguments[0], strerror(errno));
    if (WIFSIGNALED(status))
        die("%s was ended by signal %d", arguments[0], WTERMSIG(status));
    if (WEXITSTATUS(status))
        die("%s ended with status %d", arguments[0], WEXITSTATUS(status));
}

static const char *scratch;
static int scratch_root = -1;

static void remove_scratch(void) {
    int folder = openat(scratch_root, scratch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0) {
        unlinkat(folder, "ld.so.cache", 0);
        unlinkat(folder, "ld.so.cache~", 0);
    }
    unlinkat(scratch_root, scratch, AT_REMOVEDIR);
}

/* The cache is written in a fresh folder, since ldconfig writes to ld.so.cache~ as carelessly, then put into place. */
static void run_with_cache(char **arguments, int count, int root, const char *path) {
    size_t length;
    scratch = fresh_name();
    scratch_root = root;
    if (mkdirat(root, scratch, 0700))
        die("%s: %s", scratch, strerror(errno));
    atexit(remove_scratch);
    arguments[count++] = "-C";
    arguments[count++] = text("/%s/ld.so.cache", scratch);
    run(arguments, root, path);
    int folder = openat(root, scratch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int file = folder < 0 ? -1 : openat(folder, "ld.so.cache", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char *data = file < 0 ? NULL : file_text(text("/proc/self/fd/%d", file), 1u << 30, &length);
    if (!data)
        die("no cache was written: %s", strerror(errno));
    root_write(root, "/etc/ld.so.cache", data, length, 0644, 0755);
}

void update_ldcache(struct state *state, struct given *given) {
    const char *program = given->ldconfig_path ? given->ldconfig_path : "";
    if (*program == '@')
        program++;
    for (size_t i = 0; !*program && i < sizeof CANDIDATES / sizeof *CANDIDATES; i++)
        if (!access(CANDIDATES[i], X_OK))
            program = CANDIDATES[i];
    for (int i = 0; i < given->folder.count; i++)
        if (given->folder.at[i][0] != '/' || strchr(given->folder.at[i], '\n'))
            die("--folder '%s' is not an absolute path", given->folder.at[i]);
    if (!*program)
        die("the host has no ldconfig: %s, %s, %s", CANDIDATES[0], CANDIDATES[1], CANDIDATES[2]);
    char *path = state_root_path(state), *lines = "";
    int root = root_open(path), count = 0;
    bool cached = root_look(root, "/etc/ld.so.cache") >= 0;
    char *arguments[MOST_VALUES + 16] = {NULL};
    arguments[count++] = (char *)program;
    arguments[count++] = "-r";
    arguments[count++] = text("/proc/self/fd/%d", root);
    arguments[count++] = "-f";
    arguments[count++] = "/etc/ld.so.conf";
    for (int i = 0; i < given->folder.count; i++) {
        struct stat found;
        bool repeated = false;
        for (int j = 0; j < i; j++)
            repeated = repeated || !strcmp(given->folder.at[i], given->folder.at[j]);
        if (repeated)
            continue;
        lines = text("%s%s\n", lines, given->folder.at[i]);
        int fd = root_look(root, given->folder.at[i]);
        if (fd >= 0 && !fstat(fd, &found) && S_ISDIR(found.st_mode))
            arguments[count++] = (char *)given->folder.at[i];
    }
    if (*lines)
        root_write(root, text("/etc/ld.so.conf.d/00-drakkar-%010llx.conf", (unsigned long long)digest(lines) >> 24), lines,
                   strlen(lines), 0644, 0755);
    if (cached) {
        run_with_cache(arguments, count, root, path);
    } else {
        arguments[count++] = "-N";
        run(arguments, root, path);
    }
}
