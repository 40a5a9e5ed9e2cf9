/* The hooks as one static program, for hosts without Python. Behaviour is that of the Python modules beside this folder,
 * file by file; one set of cases (cases/cdi-hooks) holds for both. Everything fails through die(): one sentence, status 1. */
#ifndef DRAKKAR_HOOK_H
#define DRAKKAR_HOOK_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define MOST_VALUES 1024

/* main.c */
extern const char *hook_name;
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
__attribute__((format(printf, 1, 2))) char *text(const char *format, ...);
struct values {
    int count;
    const char *at[MOST_VALUES];
};
struct given {
    struct values link, folder, path, gpu_id;
    const char *ldconfig_path, *host_driver_version, *driver_root, *limit, *mode, *container_spec, *host_root;
};

/* json.c: values are slices of the text; a path is given as names, closed by NULL */
struct json {
    const char *from, *to;
};
bool json_valid(const char *data, size_t length, struct json *value);
bool json_get(struct json object, const char *name, struct json *value);
bool json_next(struct json array, struct json *element);
char *json_text(struct json value); /* NULL where it is no string */

/* state.c */
struct state {
    const char *bundle;
    long pid;
    struct json root, config;
    bool has_root, has_config;
};
void state_read(struct state *state, const char *path);
char *state_root_path(struct state *state);
struct json state_config(struct state *state);
char *state_variable(struct state *state, const char *name);
char *file_text(const char *path, size_t most, size_t *length); /* NULL with errno */

/* root.c: a descriptor of the root; functions return -1 with errno where nothing is, and die for the rest */
int root_open(const char *path);
int root_look(int root, const char *path);
int root_directory(int root, const char *path, mode_t mode);
void root_link(int root, const char *target, const char *path);
void root_write(int root, const char *path, const char *data, size_t length, mode_t mode, mode_t directories);
char *fresh_name(void);

/* files.c, ldcache.c, system.c */
void create_symlinks(struct state *state, struct given *given);
void apply_mode(struct state *state, struct given *given);
void enable_cuda_compat(struct state *state, struct given *given);
void update_application_profile(struct state *state, struct given *given);
void update_ldcache(struct state *state, struct given *given);
void disable_device_node_modification(struct state *state, struct given *given);
void apply_cuda_memory_limits(struct state *state, struct given *given);

#endif
