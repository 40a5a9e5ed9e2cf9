/* Commands by name, options as a table, errors as one sentence. */
#include "hook.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *hook_name = "";

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "drakkar hook %s: ", hook_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

char *text(const char *format, ...) {
    va_list arguments;
    char *result;
    va_start(arguments, format);
    if (vasprintf(&result, format, arguments) < 0)
        die("no memory");
    va_end(arguments);
    return result;
}

static struct given given;

struct option {
    const char *name;
    struct values *values;
    const char **value;
};
static const struct option LINK = {"--link", &given.link, NULL}, FOLDER = {"--folder", &given.folder, NULL},
                           PATH = {"--path", &given.path, NULL}, GPU = {"--gpu-id", &given.gpu_id, NULL},
                           LDCONFIG = {"--ldconfig-path", NULL, &given.ldconfig_path},
                           VERSION = {"--host-driver-version", NULL, &given.host_driver_version},
                           DRIVER = {"--driver-root", NULL, &given.driver_root},
                           LIMIT = {"--limit", NULL, &given.limit}, MODE = {"--mode", NULL, &given.mode},
                           SPEC = {"--container-spec", NULL, &given.container_spec},
                           HOST = {"--host-root", NULL, &given.host_root};

static const struct command {
    const char *name;
    void (*run)(struct state *, struct given *);
    const struct option *options[3];
} COMMANDS[] = {
    {"create-symlinks", create_symlinks, {&LINK}},
    {"update-ldcache", update_ldcache, {&FOLDER, &LDCONFIG}},
    {"enable-cuda-compat", enable_cuda_compat, {&VERSION}},
    {"disable-device-node-modification", disable_device_node_modification, {NULL}},
    {"update-application-profile", update_application_profile, {NULL}},
    {"apply-cuda-memory-limits", apply_cuda_memory_limits, {&DRIVER, &GPU, &LIMIT}},
    {"chmod", apply_mode, {&MODE, &PATH}},
};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof *COMMANDS)

static __attribute__((noreturn, format(printf, 1, 2))) void misused(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "drakkar hook %s: ", hook_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static const struct option *option_of(const struct command *command, const char *word, size_t length) {
    const struct option *known[] = {command->options[0], command->options[1], command->options[2], &SPEC, &HOST};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] && strlen(known[i]->name) == length && strncmp(known[i]->name, word, length) == 0)
            return known[i];
    return NULL;
}

static void read_options(const struct command *command, char **words) {
    for (; *words; words++) {
        size_t length = strcspn(*words, "=");
        const struct option *option = option_of(command, *words, length);
        if (!option)
            misused("unknown argument '%s'", *words);
        const char *value = *words + length + 1;
        if (!(*words)[length]) {
            if (!words[1])
                misused("%s has no value", option->name);
            value = *++words;
        }
        if (option->value)
            *option->value = value;
        else if (option->values->count == MOST_VALUES)
            misused("more than %d times %s", MOST_VALUES, option->name);
        else
            option->values->at[option->values->count++] = value;
    }
}

static void list(FILE *to) {
    fprintf(to, "Usage: drakkar-hook NAME [OPTIONS] < STATE\n\nHooks:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %s\n", COMMANDS[i].name);
}

int main(int count, char **words) {
    (void)count;
    for (words++; *words && (!strcmp(*words, "--debug") || !strcmp(*words, "--quiet")); words++)
        ;
    if (*words && !strcmp(*words, "hook")) /* `drakkar-hook hook NAME` too, so that one path fits both programs */
        words++;
    if (!*words || !strcmp(*words, "--help") || !strcmp(*words, "-h")) {
        list(stdout);
        return *words ? 0 : 2;
    }
    /* The runtime hands the container's environment to a hook that has none in its specification. */
    clearenv();
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("LC_ALL", "C", 1);
    umask(022);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(COMMANDS[i].name, *words))
            continue;
        struct state state = {0};
        hook_name = COMMANDS[i].name;
        read_options(&COMMANDS[i], words + 1);
        state_read(&state, given.container_spec ? given.container_spec : "");
        COMMANDS[i].run(&state, &given);
        return 0;
    }
    hook_name = "";
    misused("no such hook '%s'", *words);
}
