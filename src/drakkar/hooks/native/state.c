/* The OCI state on standard input leads to the bundle, the bundle to the container's root. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_BYTES (16u << 20)

static char *read_all(int fd, size_t most, size_t *length) {
    size_t room = 1 << 16, used = 0;
    char *data = malloc(room + 1);
    for (ssize_t got; data; used += got) {
        if (used == room) {
            if (room > most)
                break;
            room *= 2;
            data = realloc(data, room + 1);
            if (!data)
                break;
        }
        got = read(fd, data + used, room - used);
        if (got < 0 && errno != EINTR) {
            free(data);
            return NULL;
        }
        if (got == 0)
            break;
        if (got < 0)
            got = 0;
    }
    if (!data)
        die("no memory");
    data[used] = 0;
    *length = used;
    return data;
}

char *file_text(const char *path, size_t most, size_t *length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *data = read_all(fd, most, length);
    int error = errno;
    close(fd);
    errno = error;
    return data;
}

static struct json object(char *data, size_t length, const char *what) {
    struct json value;
    if (length > MOST_BYTES)
        die("%s is larger than %u bytes", what, MOST_BYTES);
    if (!json_valid(data, length, &value))
        die("%s is not JSON", what);
    if (*value.from != '{')
        die("%s is not a JSON object", what);
    return value;
}

void state_read(struct state *state, const char *path) {
    size_t length;
    struct json value, field;
    if (!*path || !strcmp(path, "-")) {
        char *data = read_all(0, MOST_BYTES, &length);
        if (!data)
            die("cannot read the container's state on standard input: %s", strerror(errno));
        value = object(data, length, "the container's state on standard input");
    } else {
        char *data = file_text(path, MOST_BYTES, &length);
        if (!data)
            die("cannot read the container's state %s: %s", path, strerror(errno));
        value = object(data, length, text("the container's state %s", path));
    }
    state->bundle = "";
    for (int i = 0; i < 2 && !*state->bundle; i++)
        if (json_get(value, i ? "bundlePath" : "bundle", &field) && *field.from != 'n' && !(state->bundle = json_text(field)))
            die("the container's state has no bundle or no pid");
    if (json_get(value, "pid", &field)) {
        char *end;
        state->pid = strtol(field.from, &end, 10);
        if (end != field.to)
            die("the container's state has no bundle or no pid");
    }
    state->has_root = json_get(value, "root", &state->root) && *state->root.from != 'n';
}

struct json state_config(struct state *state) {
    if (!state->has_config) {
        size_t length;
        if (!*state->bundle)
            die("the container's state names no bundle");
        char *path = text("%s/config.json", state->bundle), *data = file_text(path, MOST_BYTES, &length);
        if (!data)
            die("cannot read the container's configuration %s: %s", path, strerror(errno));
        state->config = object(data, length, text("the container's configuration %s", path));
        state->has_config = true;
    }
    return state->config;
}

char *state_root_path(struct state *state) {
    struct json root = state->root, inner;
    char *path = NULL;
    if (state->has_root || json_get(state_config(state), "root", &root)) {
        if (json_get(root, "path", &inner))
            root = inner;
        path = json_text(root);
    }
    if (!path || !*path)
        die("neither the container's state nor its configuration names a root");
    return *path == '/' ? path : text("%s/%s", state->bundle, path);
}

char *state_variable(struct state *state, const char *name) {
    struct json process, env, entry = {0};
    char *found = NULL;
    size_t length = strlen(name);
    if (!json_get(state_config(state), "process", &process) || !json_get(process, "env", &env))
        return NULL;
    while (json_next(env, &entry)) {
        char *each = json_text(entry);
        if (each && !strncmp(each, name, length) && each[length] == '=')
            found = each + length + 1;
    }
    return found;
}
