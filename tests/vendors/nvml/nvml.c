/* A libnvidia-ml.so.1 that serves the machine in a text file: what the ctypes layer is tested with.
 *
 * The file is named by DRAKKAR_MOCK_NVML, one fact a line, words between tabs (see machine_file in __init__.py). It is
 * read again whenever it has changed, and what is done to the machine (MIG instances made and destroyed) is appended
 * to it, so that every process sees the same hardware. Structures are written out here a second time, from nvml.h,
 * and not taken from the Python side: a mistake in one of the two shows.
 *
 * -DOLD_LIBRARY leaves out the functions that came after driver branch R470.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15, SHORT = 7,
       MISMATCH = 25, INSUFFICIENT = 23, ABSENT = 13 };
enum { GPUS = 16, PROFILES = 32, INSTANCES = 16, RULES = 32, XIDS = 64, STARTS = 16 };

typedef struct { unsigned index, id, slices, count, mp, copy, dec, enc, jpeg, ofa; unsigned long long memory;
                 char name[96]; unsigned size, starts[STARTS], placed; } Profile;
typedef struct { int used, gpu; unsigned gi, ci, profile, start, size, slices; char uuid[96]; } Instance;
typedef struct { char uuid[96], name[96], serial[32], vbios[32], bus[32], cluster[40]; unsigned minor, module, device,
                 subsystem, brand, arch, major, minor_cc, clique; int addressing, mig, lost, persistent, virtual, recovery, remap_pending, remap_failed; unsigned long long memory, ecc, clocks;
                 Profile profiles[PROFILES]; int profile_count; Instance instances[INSTANCES];
                 unsigned ids[16][16]; } Gpu;
typedef struct { char function[64]; int code, milliseconds; } Rule;
typedef struct { int gpu; unsigned long long code; } Xid;

static Gpu gpus[GPUS];
static Rule rules[RULES];
static Xid xids[XIDS];
static int gpu_count, rule_count, xid_count, xid_taken, ready;
static char driver[80];
static int cuda;
static struct timespec seen;
static off_t seen_size;

static const char *path(void) { const char *p = getenv("DRAKKAR_MOCK_NVML"); return p ? p : "/etc/mock-nvml"; }

static void one_line(char *line) {
    char *w[32]; int n = 0;
    line[strcspn(line, "\n")] = 0;
    for (char *p = line; p && n < 32;) { w[n++] = p; p = strchr(p, '\t'); if (p) *p++ = 0; }
    if (!strcmp(w[0], "driver")) snprintf(driver, sizeof driver, "%s", w[1]);
    else if (!strcmp(w[0], "cuda")) cuda = atoi(w[1]);
    else if (!strcmp(w[0], "answer") && rule_count < RULES) {
        snprintf(rules[rule_count].function, 64, "%s", w[1]); rules[rule_count].milliseconds = 0; rules[rule_count++].code = atoi(w[2]);
    } else if (!strcmp(w[0], "slow") && rule_count < RULES) {
        snprintf(rules[rule_count].function, 64, "%s", w[1]); rules[rule_count].code = 0;
        rules[rule_count++].milliseconds = atoi(w[2]);
    } else if (!strcmp(w[0], "gpu") && n >= 19) {
        Gpu *g = &gpus[gpu_count++]; memset(g, 0, sizeof *g);
        snprintf(g->uuid, 96, "%s", w[1]); snprintf(g->name, 96, "%s", w[2]); snprintf(g->serial, 32, "%s", w[3]);
        snprintf(g->vbios, 32, "%s", w[4]); g->minor = atoi(w[5]); g->module = atoi(w[6]);
        snprintf(g->bus, 32, "%s", w[7]); g->device = strtoul(w[8], 0, 16); g->subsystem = strtoul(w[9], 0, 16);
        g->memory = strtoull(w[10], 0, 10); g->brand = atoi(w[11]); g->arch = atoi(w[12]); g->major = atoi(w[13]);
        g->minor_cc = atoi(w[14]); g->addressing = atoi(w[15]); snprintf(g->cluster, 40, "%s", w[16]);
        g->clique = atoi(w[17]); g->mig = atoi(w[18]);
    } else if (!strcmp(w[0], "profile") && n >= 16) {
        Gpu *g = &gpus[atoi(w[1])]; Profile *p = &g->profiles[g->profile_count++]; memset(p, 0, sizeof *p);
        p->index = atoi(w[2]); p->id = atoi(w[3]); p->slices = atoi(w[4]); p->count = atoi(w[5]); p->mp = atoi(w[6]);
        p->copy = atoi(w[7]); p->dec = atoi(w[8]); p->enc = atoi(w[9]); p->jpeg = atoi(w[10]); p->ofa = atoi(w[11]);
        p->memory = strtoull(w[12], 0, 10); snprintf(p->name, 96, "MIG %s", w[13]); p->size = atoi(w[14]);
        for (char *s = strtok(w[15], ","); s; s = strtok(0, ",")) p->starts[p->placed++] = atoi(s);
    } else if (!strcmp(w[0], "id")) gpus[atoi(w[1])].ids[atoi(w[2])][atoi(w[3])] = atoi(w[4]);
    else if (!strcmp(w[0], "instance") && n >= 8) {
        Gpu *g = &gpus[atoi(w[1])];
        for (int i = 0; i < INSTANCES; i++) if (!g->instances[i].used) {
            Instance *x = &g->instances[i]; memset(x, 0, sizeof *x); x->used = 1; x->slices = n > 8 ? atoi(w[8]) : 0; x->gpu = atoi(w[1]);
            x->gi = atoi(w[2]); x->ci = atoi(w[3]); x->profile = atoi(w[4]); x->start = atoi(w[5]);
            x->size = atoi(w[6]); snprintf(x->uuid, 96, "%s", w[7]); break;
        }
    } else if (!strcmp(w[0], "gone")) {
        Gpu *g = &gpus[atoi(w[1])];
        for (int i = 0; i < INSTANCES; i++)
            if (g->instances[i].used && g->instances[i].gi == (unsigned)atoi(w[2])) g->instances[i].used = 0;
    } else if (!strcmp(w[0], "mode")) gpus[atoi(w[1])].mig = atoi(w[2]);
    else if (!strcmp(w[0], "persistent")) gpus[atoi(w[1])].persistent = atoi(w[2]);
    else if (!strcmp(w[0], "virtual")) gpus[atoi(w[1])].virtual = atoi(w[2]);
    else if (!strcmp(w[0], "lost")) gpus[atoi(w[1])].lost = atoi(w[2]);
    else if (!strcmp(w[0], "remap")) {
        gpus[atoi(w[1])].remap_pending = atoi(w[2]); gpus[atoi(w[1])].remap_failed = atoi(w[3]);
    } else if (!strcmp(w[0], "ecc")) gpus[atoi(w[1])].ecc = atoi(w[2]);
    else if (!strcmp(w[0], "clocks")) gpus[atoi(w[1])].clocks = strtoull(w[2], 0, 16);
    else if (!strcmp(w[0], "recovery")) gpus[atoi(w[1])].recovery = atoi(w[2]);
    else if (!strcmp(w[0], "xid") && xid_count < XIDS) {
        xids[xid_count].gpu = atoi(w[1]); xids[xid_count++].code = strtoull(w[2], 0, 10);
    }
}

static void load(void) {
    struct stat s;
    if (stat(path(), &s) || (s.st_size == seen_size && s.st_mtim.tv_sec == seen.tv_sec &&
                             s.st_mtim.tv_nsec == seen.tv_nsec)) return;
    FILE *f = fopen(path(), "r");
    if (!f) return;
    gpu_count = rule_count = xid_count = 0;
    char line[1024];
    while (fgets(line, sizeof line, f)) one_line(line);
    fclose(f);
    seen = s.st_mtim; seen_size = s.st_size;
}

static void happened(const char *line) {
    FILE *f = fopen(path(), "a");
    if (f) { fputs(line, f); fclose(f); }
    load();
}

/* What stands before the answer of every function: the file's own rules, whether it was initialised. */
static int before(const char *function) {
    load();
    for (int i = 0; i < rule_count; i++)
        if (!strcmp(rules[i].function, function)) {
            usleep(1000 * rules[i].milliseconds);
            if (rules[i].code) return rules[i].code;
        }
    return ready ? OK : UNINITIALIZED;
}
#define BEFORE { int code_ = before(__func__); if (code_) return code_; }
#define ALIVE(h) Gpu *g = gpu_of(h); if (!g) return INVALID; if (g->lost) return LOST;

static Instance *instance_of(void *h) {
    for (int i = 0; i < gpu_count; i++)
        if (h >= (void *)gpus[i].instances && h < (void *)(gpus[i].instances + INSTANCES)) return h;
    return 0;
}
static Gpu *gpu_of(void *h) {
    for (int i = 0; i < gpu_count; i++) if (h == (void *)&gpus[i]) return h;
    Instance *x = instance_of(h);
    return x ? &gpus[x->gpu] : 0;
}
static int text(char *to, unsigned size, const char *from) {
    if (strlen(from) + 1 > size) return SHORT;
    strcpy(to, from);
    return OK;
}

int nvmlInit_v2(void) {
    load();
    for (int i = 0; i < rule_count; i++) if (!strcmp(rules[i].function, __func__)) return rules[i].code;
    ready = 1;
    return OK;
}
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { ready = 0; return OK; }
const char *nvmlErrorString(int code) { static char said[32]; snprintf(said, sizeof said, "code %d", code); return said; }
int nvmlSystemGetDriverVersion(char *v, unsigned n) { BEFORE return text(v, n, driver); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { BEFORE *v = cuda; return OK; }
int nvmlSystemGetCudaDriverVersion(int *v) { BEFORE *v = cuda; return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { BEFORE *n = gpu_count; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
    BEFORE
    if ((int)i >= gpu_count) return INVALID;
    if (gpus[i].lost) return LOST;
    *h = &gpus[i];
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **h) {
    BEFORE
    for (int i = 0; i < gpu_count; i++) {
        if (!strcmp(gpus[i].uuid, uuid)) { *h = &gpus[i]; return OK; }
        for (int j = 0; j < INSTANCES; j++)
            if (gpus[i].instances[j].used && !strcmp(gpus[i].instances[j].uuid, uuid)) {
                *h = &gpus[i].instances[j]; return OK;
            }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(void *h, unsigned *i) {
    BEFORE ALIVE(h)
    *i = g - gpus;
    if (instance_of(h)) { /* a MIG device is counted on its GPU */
        *i = 0;
        for (Instance *x = g->instances; x != h; x++) *i += x->used;
    }
    return OK;
}
int nvmlDeviceIsMigDeviceHandle(void *h, unsigned *is) { BEFORE *is = instance_of(h) != 0; return OK; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *h, void **parent) {
    BEFORE ALIVE(h)
    *parent = g;
    return OK;
}
int nvmlDeviceGetUUID(void *h, char *v, unsigned n) {
    BEFORE ALIVE(h)
    Instance *x = instance_of(h);
    return text(v, n, x ? x->uuid : g->uuid);
}
int nvmlDeviceGetName(void *h, char *v, unsigned n) { BEFORE ALIVE(h) return text(v, n, g->name); }
int nvmlDeviceGetSerial(void *h, char *v, unsigned n) { BEFORE ALIVE(h) return text(v, n, g->serial); }
int nvmlDeviceGetVbiosVersion(void *h, char *v, unsigned n) { BEFORE ALIVE(h) return text(v, n, g->vbios); }
int nvmlDeviceGetMinorNumber(void *h, unsigned *v) { BEFORE ALIVE(h) *v = g->minor; return OK; }
int nvmlDeviceGetBrand(void *h, unsigned *v) { BEFORE ALIVE(h) *v = g->brand; return OK; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) {
    BEFORE ALIVE(h)
    *a = g->major; *b = g->minor_cc;
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *v) {
    BEFORE ALIVE(h)
    Instance *x = instance_of(h);
    v[0] = g->memory;
    for (int i = 0; x && i < g->profile_count; i++)
        if (g->profiles[i].id == x->profile) v[0] = g->profiles[i].memory << 20;
    v[1] = v[0]; v[2] = 0;
    return OK;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(void *h, Pci *p) {
    BEFORE ALIVE(h)
    unsigned function;
    memset(p, 0, sizeof *p);
    sscanf(g->bus, "%x:%x:%x.%x", &p->domain, &p->bus, &p->device, &function);
    snprintf(p->text, 32, "%08X:%02X:%02X.%X", p->domain, p->bus, p->device, function);
    snprintf(p->legacy, 16, "%04X:%02X:%02X.%X", p->domain & 0xffff, p->bus & 0xff, p->device & 0xff, function & 7);
    p->id = g->device << 16 | 0x10de; p->subsystem = g->subsystem << 16 | 0x10de;
    return OK;
}

int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
    BEFORE ALIVE(h)
    if (g->mig < 0) return UNSUPPORTED;
    *current = *pending = g->mig;
    return OK;
}
int nvmlDeviceSetMigMode(void *h, unsigned mode, int *status) {
    BEFORE ALIVE(h)
    if (g->mig < 0) return UNSUPPORTED;
    char line[64];
    snprintf(line, 64, "mode\t%d\t%u\n", (int)(g - gpus), mode);
    *status = OK;
    happened(line);
    return OK;
}
int nvmlDeviceGetVirtualizationMode(void *h, unsigned *mode) { BEFORE ALIVE(h) *mode = g->virtual; return OK; }
int nvmlDeviceGetPersistenceMode(void *h, unsigned *mode) { BEFORE ALIVE(h) *mode = g->persistent; return OK; }
int nvmlDeviceSetPersistenceMode(void *h, unsigned mode) {
    BEFORE ALIVE(h)
    char line[64];
    snprintf(line, 64, "persistent\t%d\t%u\n", (int)(g - gpus), mode);
    happened(line);
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) { BEFORE ALIVE(h) *n = g->mig < 0 ? 0 : 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **to) {
    BEFORE ALIVE(h)
    for (int i = 0; i < INSTANCES; i++)
        if (g->instances[i].used && !index--) { *to = &g->instances[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(void *h, unsigned *id) {
    BEFORE
    Instance *x = instance_of(h);
    if (!x) return INVALID;
    *id = x->gi;
    return OK;
}
int nvmlDeviceGetComputeInstanceId(void *h, unsigned *id) {
    BEFORE
    Instance *x = instance_of(h);
    if (!x) return INVALID;
    *id = x->ci;
    return OK;
}
int nvmlDeviceGetGpuInstanceById(void *h, unsigned id, void **to) {
    BEFORE ALIVE(h)
    for (int i = 0; i < INSTANCES; i++)
        if (g->instances[i].used && g->instances[i].gi == id) { *to = &g->instances[i]; return OK; }
    return NOT_FOUND;
}
typedef struct { void *device; unsigned id, profile, start, size; } InstanceInfo;
int nvmlGpuInstanceGetInfo(void *h, InstanceInfo *info) {
    BEFORE
    Instance *x = instance_of(h);
    if (!x) return INVALID;
    *info = (InstanceInfo){&gpus[x->gpu], x->gi, x->profile, x->start, x->size};
    return OK;
}

typedef struct { unsigned mp, copy, dec, enc, jpeg, ofa, gpu_slices, compute_slices; unsigned long long memory;
} Attributes;
static Profile *profile_of(Gpu *g, unsigned id);
int nvmlDeviceGetAttributes_v2(void *h, Attributes *to) {
    BEFORE ALIVE(h)
    Instance *x = instance_of(h);
    Profile *p = x ? profile_of(g, x->profile) : 0;
    if (!p) return INVALID;
    *to = (Attributes){p->mp, p->copy, p->dec, p->enc, p->jpeg, p->ofa, p->slices, x->slices ? x->slices : p->slices,
                       p->memory};
    return OK;
}

static Profile *profile_at(Gpu *g, unsigned index) {
    for (int i = 0; i < g->profile_count; i++) if (g->profiles[i].index == index) return &g->profiles[i];
    return 0;
}
static Profile *profile_of(Gpu *g, unsigned id) {
    for (int i = 0; i < g->profile_count; i++) if (g->profiles[i].id == id) return &g->profiles[i];
    return 0;
}
typedef struct { unsigned id, p2p, slices, count, mp, copy, dec, enc, jpeg, ofa; unsigned long long memory; } Info;
int nvmlDeviceGetGpuInstanceProfileInfo(void *h, unsigned index, Info *info) {
    BEFORE ALIVE(h)
    Profile *p = profile_at(g, index);
    if (g->mig < 0) return UNSUPPORTED;
    if (!p) return index >= 0x12 ? INVALID : UNSUPPORTED;
    *info = (Info){p->id, 0, p->slices, p->count, p->mp, p->copy, p->dec, p->enc, p->jpeg, p->ofa, p->memory};
    return OK;
}
typedef struct { unsigned start, size; } Placement;
static int placements(Gpu *g, unsigned id, Placement *to, unsigned *count) {
    Profile *p = profile_of(g, id);
    if (!p) return INVALID;
    if (to && *count < p->placed) return SHORT;
    for (unsigned i = 0; to && i < p->placed; i++) to[i] = (Placement){p->starts[i], p->size};
    *count = p->placed;
    return OK;
}
#ifdef OLD_LIBRARY
int nvmlDeviceGetGpuInstancePossiblePlacements(void *h, unsigned id, Placement *to, unsigned *count) {
    BEFORE ALIVE(h)
    return placements(g, id, to, count);
}
#else
typedef struct {
    const char *path;
    unsigned long long soft, hard;
} MemoryLimits;

int nvmlDeviceSetMemoryLimits_v1(void *h, MemoryLimits *limits) {
    BEFORE ALIVE(h)
    (void)g;
    return limits->soft > limits->hard ? 2 : 0; /* NVML_ERROR_INVALID_ARGUMENT */
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *h, unsigned id, Placement *to, unsigned *count) {
    BEFORE ALIVE(h)
    return placements(g, id, to, count);
}
/* unsigned version before the rest of nvmlGpuInstanceProfileInfo_t would be padded: laid out by hand. */
int nvmlDeviceGetGpuInstanceProfileInfoV(void *h, unsigned index, unsigned *to) {
    BEFORE ALIVE(h)
    Profile *p = profile_at(g, index);
    if (g->mig < 0) return UNSUPPORTED;
    if (!p) return index >= 0x12 ? INVALID : UNSUPPORTED;
    if (*to >> 24 != 2 || (*to & 0xffffff) != 152) return MISMATCH;
    unsigned figures[] = {p->id, 0, p->slices, p->count, p->mp, p->copy, p->dec, p->enc, p->jpeg, p->ofa};
    memcpy(to + 1, figures, sizeof figures);
    memcpy((char *)to + 48, &p->memory, 8);
    memcpy((char *)to + 56, p->name, 96);
    return OK;
}
int nvmlDeviceGetArchitecture(void *h, unsigned *v) { BEFORE ALIVE(h) *v = g->arch; return OK; }
int nvmlDeviceGetModuleId(void *h, unsigned *v) { BEFORE ALIVE(h) *v = g->module; return OK; }
int nvmlDeviceGetAddressingMode(void *h, unsigned *v) {
    BEFORE ALIVE(h)
    if (v[0] != (8 | 1 << 24)) return MISMATCH;
    if (g->addressing < 0) return UNSUPPORTED;
    v[1] = g->addressing;
    return OK;
}
int nvmlDeviceGetGpuFabricInfoV(void *h, unsigned char *to) {
    BEFORE ALIVE(h)
    unsigned version;
    memcpy(&version, to, 4);
    if (version != (36 | 2 << 24)) return MISMATCH;
    memset(to + 4, 0, 32);
    if (!strcmp(g->cluster, "-")) return UNSUPPORTED;
    for (int i = 0; i < 16; i++) { unsigned b; sscanf(g->cluster + 2 * i, "%2x", &b); to[4 + i] = b; }
    memcpy(to + 24, &g->clique, 4);
    to[28] = 3;
    return OK;
}
#endif

static int make(Gpu *g, unsigned id, int start, void **to) {
    Profile *p = profile_of(g, id);
    if (!p) return INVALID;
    if (g->mig != 1) return UNSUPPORTED;
    for (unsigned i = 0; i < p->placed; i++) {
        unsigned s = p->starts[i];
        int fits = start < 0 || s == (unsigned)start;
        for (int j = 0; j < INSTANCES; j++) {
            Instance *x = &g->instances[j];
            if (x->used && s < x->start + x->size && x->start < s + p->size) fits = 0;
        }
        if (!fits) continue;
        char line[256];
        int gpu = g - gpus;
        unsigned gi = g->ids[p->size][s];
        snprintf(line, 256, "instance\t%d\t%u\t0\t%u\t%u\t%u\tMIG-00000000-0000-5000-8000-%04d%04u%04u\n", gpu, gi, id,
                 s, p->size, gpu, gi, id);
        happened(line);
        return nvmlDeviceGetGpuInstanceById(g, gi, to);
    }
    return INSUFFICIENT;
}
int nvmlDeviceCreateGpuInstance(void *h, unsigned id, void **to) { BEFORE ALIVE(h) return make(g, id, -1, to); }
int nvmlDeviceCreateGpuInstanceWithPlacement(void *h, unsigned id, Placement *at, void **to) {
    BEFORE ALIVE(h)
    return make(g, id, at->start, to);
}
int nvmlGpuInstanceDestroy(void *h) {
    BEFORE
    Instance *x = instance_of(h);
    if (!x) return INVALID;
    char line[64];
    snprintf(line, 64, "gone\t%d\t%u\n", x->gpu, x->gi);
    happened(line);
    return OK;
}
typedef struct { unsigned id, slices, count, mp, copy, dec, enc, jpeg, ofa; } ComputeInfo;
int nvmlGpuInstanceGetComputeInstanceProfileInfo(void *h, unsigned index, unsigned engine, ComputeInfo *info) {
    static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6, 1, 7};
    BEFORE
    Instance *x = instance_of(h);
    if (!x || engine) return INVALID;
    Profile *p = profile_of(&gpus[x->gpu], x->profile);
    if (index >= 9) return INVALID;
    if (!p || slices[index] > p->slices) return UNSUPPORTED;
    *info = (ComputeInfo){index, slices[index], 1, p->mp, 0, 0, 0, 0, 0};
    return OK;
}
int nvmlGpuInstanceCreateComputeInstance(void *h, unsigned id, void **to) {
    BEFORE
    Instance *x = instance_of(h);
    if (!x || id >= 9) return INVALID;
    *to = x;
    return OK;
}
int nvmlGpuInstanceGetComputeInstanceById(void *h, unsigned id, void **to) {
    BEFORE
    Instance *x = instance_of(h);
    for (int i = 0; x && i < INSTANCES; i++) {
        Instance *y = &gpus[x->gpu].instances[i];
        if (y->used && y->gi == x->gi && y->ci == id) { *to = y; return OK; }
    }
    return NOT_FOUND;
}
int nvmlComputeInstanceDestroy(void *h) { BEFORE return instance_of(h) ? OK : INVALID; }
typedef struct { void *device, *instance; unsigned id, profile, start, size; } ComputeInstanceInfo;
int nvmlComputeInstanceGetInfo_v2(void *h, ComputeInstanceInfo *info) {
    BEFORE
    Instance *x = instance_of(h);
    if (!x) return INVALID;
    *info = (ComputeInstanceInfo){&gpus[x->gpu], x, x->ci, 0, x->start, x->size};
    return OK;
}

typedef struct { unsigned id, scope; long long time, latency; int type, result; unsigned long long value; } Field;
int nvmlDeviceGetFieldValues(void *h, int count, Field *fields) {
    BEFORE ALIVE(h)
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].id == 230 ? OK : UNSUPPORTED;
        fields[i].type = 1;
        if (fields[i].id == 230) *(unsigned *)&fields[i].value = g->recovery;
    }
    return OK;
}

int nvmlDeviceGetRemappedRows(void *h, unsigned *cor, unsigned *unc, unsigned *pending, unsigned *failed) {
    BEFORE ALIVE(h)
    *cor = *unc = 0; *pending = g->remap_pending; *failed = g->remap_failed;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(void *h, unsigned type, unsigned counter, unsigned long long *n) {
    BEFORE ALIVE(h)
    *n = type == 1 && counter == 0 ? g->ecc : 0;
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *mask) {
    BEFORE ALIVE(h)
    *mask = g->clocks;
    return OK;
}

int nvmlEventSetCreate(void **set) { BEFORE *set = &xid_taken; xid_taken = xid_count; return OK; }
int nvmlEventSetFree(void *set) { BEFORE return set ? OK : INVALID; }
int nvmlDeviceGetSupportedEventTypes(void *h, unsigned long long *types) { BEFORE ALIVE(h) *types = 0x8; return OK; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set) {
    BEFORE ALIVE(h)
    return set && types == 0x8 ? OK : INVALID;
}
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } Event;
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout) {
    BEFORE
    (void)timeout;
    if (!set) return INVALID;
    if (xid_taken >= xid_count) return TIMEOUT;
    *event = (Event){&gpus[xids[xid_taken].gpu], 0x8, xids[xid_taken].code, 0xffffffff, 0xffffffff};
    xid_taken++;
    return OK;
}
