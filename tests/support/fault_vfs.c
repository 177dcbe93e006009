/* A disk in memory with faults. Files keep their current bytes, the bytes that
 * are surely on the platter, and the writes between the two. */
#include "tests/support/fault_vfs.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 16, SECTOR = 512, SHM_REGIONS_MAX = 64 };

struct bytes {
    uint8_t *data;
    size_t size, capacity;
};

struct pending {
    sqlite3_int64 offset;
    int size;
    uint8_t *data;
};

struct disk_file {
    char name[512];
    int exists, opens;
    struct bytes now, durable;
    struct pending *pending;
    int pending_count, pending_capacity;
    int shared, reserved, exclusive; /* connections that hold a lock of that level */
    void *shm[SHM_REGIONS_MAX];
    int shm_shared[SQLITE_SHM_NLOCK], shm_exclusive[SQLITE_SHM_NLOCK];
};

struct handle {
    sqlite3_file base;
    struct disk_file *file;
    int lock, delete_on_close;
    uint16_t shm_shared, shm_exclusive;
};

static struct disk_file files[FILES_MAX];
static struct {
    enum fault_kind kind;
    uint64_t left, calls, seed, space;
    int fired, dead, registered;
} fault = {.space = UINT64_MAX};

/* ---- bytes --------------------------------------------------------------------- */

static void bytes_write(struct bytes *b, size_t offset, const void *data, size_t size)
{
    if (offset + size > b->capacity) {
        b->capacity = (offset + size) * 2;
        b->data = realloc(b->data, b->capacity);
        if (!b->data) abort();
    }
    while (b->size < offset) b->data[b->size++] = 0;
    memcpy(b->data + offset, data, size);
    if (offset + size > b->size) b->size = offset + size;
}

static void drop_pending(struct disk_file *f)
{
    for (int i = 0; i < f->pending_count; i++) free(f->pending[i].data);
    f->pending_count = 0;
}

static void make_durable(struct disk_file *f)
{
    for (int i = 0; i < f->pending_count; i++) {
        const struct pending *p = &f->pending[i];
        if (p->size) bytes_write(&f->durable, (size_t)p->offset, p->data, (size_t)p->size);
    }
    drop_pending(f);
}

static uint64_t random_bits(void)
{
    fault.seed += 0x9e3779b97f4a7c15u;
    uint64_t x = fault.seed;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Of each unsynced write: all of it, none of it, or some of its sectors. */
static void cut(struct disk_file *f)
{
    for (int i = 0; i < f->pending_count; i++) {
        const struct pending *p = &f->pending[i];
        uint64_t choice = random_bits() % 4;
        for (int at = 0; at < p->size; at += SECTOR) {
            int size = p->size - at < SECTOR ? p->size - at : SECTOR;
            if (choice == 0 || (choice == 1 && random_bits() % 2)) continue;
            bytes_write(&f->durable, (size_t)(p->offset + at), p->data + at, (size_t)size);
        }
    }
    drop_pending(f);
}

/* ---- faults --------------------------------------------------------------------- */

/* 1 if this call must fail. */
static int fails(void)
{
    fault.calls++;
    if (fault.dead) return 1;
    if (fault.kind == FAULT_NONE || fault.left == 0 || --fault.left > 0)
        return fault.fired && fault.kind == FAULT_STUCK;
    fault.fired = 1;
    if (fault.kind == FAULT_CUT) {
        for (int i = 0; i < FILES_MAX; i++)
            if (files[i].exists) cut(&files[i]);
    }
    fault.dead = fault.kind == FAULT_CUT || fault.kind == FAULT_KILL;
    return 1;
}

/* ---- file methods ----------------------------------------------------------------- */

static struct disk_file *find(const char *name)
{
    for (int i = 0; i < FILES_MAX; i++)
        if (files[i].exists && strcmp(files[i].name, name) == 0) return &files[i];
    return NULL;
}

static void remove_file(struct disk_file *f)
{
    drop_pending(f);
    for (int i = 0; i < SHM_REGIONS_MAX; i++) free(f->shm[i]);
    free(f->pending);
    free(f->now.data);
    free(f->durable.data);
    memset(f, 0, sizeof *f);
}

static int file_unlock(sqlite3_file *base, int level)
{
    struct handle *h = (struct handle *)base;
    if (h->lock >= SQLITE_LOCK_EXCLUSIVE && level < SQLITE_LOCK_EXCLUSIVE) h->file->exclusive--;
    if (h->lock >= SQLITE_LOCK_RESERVED && level < SQLITE_LOCK_RESERVED) h->file->reserved--;
    if (h->lock >= SQLITE_LOCK_SHARED && level < SQLITE_LOCK_SHARED) h->file->shared--;
    if (level < h->lock) h->lock = level;
    return SQLITE_OK;
}

static int file_lock(sqlite3_file *base, int level)
{
    struct handle *h = (struct handle *)base;
    struct disk_file *f = h->file;
    if (fails()) return SQLITE_IOERR_LOCK;
    if (level <= h->lock) return SQLITE_OK;
    if (h->lock < SQLITE_LOCK_SHARED) {
        if (f->exclusive) return SQLITE_BUSY;
        f->shared++;
        h->lock = SQLITE_LOCK_SHARED;
    }
    if (level >= SQLITE_LOCK_RESERVED && h->lock < SQLITE_LOCK_RESERVED) {
        if (f->reserved) return SQLITE_BUSY;
        f->reserved++;
        h->lock = SQLITE_LOCK_RESERVED;
    }
    if (level >= SQLITE_LOCK_EXCLUSIVE && h->lock < SQLITE_LOCK_EXCLUSIVE) {
        if (f->shared > 1) return SQLITE_BUSY;
        f->exclusive++;
        h->lock = SQLITE_LOCK_EXCLUSIVE;
    }
    return SQLITE_OK;
}

static int file_close(sqlite3_file *base)
{
    struct handle *h = (struct handle *)base;
    file_unlock(base, SQLITE_LOCK_NONE);
    h->file->opens--;
    if (h->delete_on_close) remove_file(h->file);
    return SQLITE_OK;
}

static int file_read(sqlite3_file *base, void *out, int size, sqlite3_int64 offset)
{
    struct bytes *b = &((struct handle *)base)->file->now;
    if (fails()) return SQLITE_IOERR_READ;
    sqlite3_int64 there = (sqlite3_int64)b->size - offset;
    if (there < 0) there = 0;
    if (there > size) there = size;
    if (there) memcpy(out, b->data + offset, (size_t)there);
    if (there == size) return SQLITE_OK;
    memset((char *)out + there, 0, (size_t)(size - there));
    return SQLITE_IOERR_SHORT_READ;
}

static int file_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 offset)
{
    struct disk_file *f = ((struct handle *)base)->file;
    int failing = fails();
    if (fault.dead) return SQLITE_IOERR_WRITE;
    uint64_t end = (uint64_t)(offset + size), before = f->now.size;
    if (end > before && fault_vfs_bytes() + end - before > fault.space) return SQLITE_FULL;
    if (failing) size /= 2; /* a short write: half of it is there */
    if (f->pending_count == f->pending_capacity) {
        f->pending_capacity = f->pending_capacity ? 2 * f->pending_capacity : 16;
        f->pending = realloc(f->pending, (size_t)f->pending_capacity * sizeof *f->pending);
    }
    struct pending *p = &f->pending[f->pending_count++];
    *p = (struct pending){offset, size, malloc(size ? (size_t)size : 1)};
    memcpy(p->data, data, (size_t)size);
    bytes_write(&f->now, (size_t)offset, data, (size_t)size);
    return failing ? SQLITE_IOERR_WRITE : SQLITE_OK;
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    struct disk_file *f = ((struct handle *)base)->file;
    if (fails()) return SQLITE_IOERR_TRUNCATE;
    /* At once on the platter: the harder case for the order of things. */
    if ((size_t)size < f->now.size) f->now.size = (size_t)size;
    if ((size_t)size < f->durable.size) f->durable.size = (size_t)size;
    for (int i = 0; i < f->pending_count; i++) {
        struct pending *p = &f->pending[i];
        if (p->offset >= size)
            p->size = 0;
        else if (p->offset + p->size > size)
            p->size = (int)(size - p->offset);
    }
    return SQLITE_OK;
}

static int file_sync(sqlite3_file *base, int flags)
{
    (void)flags;
    if (fails()) return SQLITE_IOERR_FSYNC;
    make_durable(((struct handle *)base)->file);
    return SQLITE_OK;
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size)
{
    if (fails()) return SQLITE_IOERR_FSTAT;
    *size = (sqlite3_int64)((struct handle *)base)->file->now.size;
    return SQLITE_OK;
}

static int file_check_reserved(sqlite3_file *base, int *out)
{
    *out = ((struct handle *)base)->file->reserved > 0;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *base, int op, void *arg)
{
    (void)base;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int file_sector_size(sqlite3_file *base)
{
    (void)base;
    return SECTOR;
}

static int file_characteristics(sqlite3_file *base)
{
    (void)base;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static int shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **out)
{
    struct disk_file *f = ((struct handle *)base)->file;
    *out = NULL;
    if (region >= SHM_REGIONS_MAX || fails()) return SQLITE_IOERR_SHMMAP;
    if (!f->shm[region] && extend) {
        f->shm[region] = calloc(1, (size_t)size);
        if (!f->shm[region]) return SQLITE_NOMEM;
    }
    *out = f->shm[region];
    return SQLITE_OK;
}

static int shm_lock(sqlite3_file *base, int offset, int count, int flags)
{
    struct handle *h = (struct handle *)base;
    struct disk_file *f = h->file;
    if (!(flags & SQLITE_SHM_UNLOCK) && fails()) return SQLITE_IOERR_SHMLOCK;
    for (int pass = 0; pass < 2; pass++) { /* first whether all can be had */
        for (int i = offset; i < offset + count; i++) {
            uint16_t bit = (uint16_t)(1 << i);
            int others_shared = f->shm_shared[i] - ((h->shm_shared & bit) != 0);
            int others_exclusive = f->shm_exclusive[i] - ((h->shm_exclusive & bit) != 0);
            if (flags & SQLITE_SHM_UNLOCK) {
                if (pass == 0) continue;
                f->shm_shared[i] -= (h->shm_shared & bit) != 0;
                f->shm_exclusive[i] -= (h->shm_exclusive & bit) != 0;
                h->shm_shared &= (uint16_t)~bit;
                h->shm_exclusive &= (uint16_t)~bit;
            } else if (pass == 0) {
                if (others_exclusive || ((flags & SQLITE_SHM_EXCLUSIVE) && others_shared))
                    return SQLITE_BUSY;
            } else if (flags & SQLITE_SHM_EXCLUSIVE) {
                f->shm_exclusive[i] += !(h->shm_exclusive & bit);
                h->shm_exclusive |= bit;
            } else {
                f->shm_shared[i] += !(h->shm_shared & bit);
                h->shm_shared |= bit;
            }
        }
    }
    return SQLITE_OK;
}

static void shm_barrier(sqlite3_file *base)
{
    (void)base;
}

static int shm_unmap(sqlite3_file *base, int remove)
{
    struct handle *h = (struct handle *)base;
    shm_lock(base, 0, SQLITE_SHM_NLOCK, SQLITE_SHM_UNLOCK);
    for (int i = 0; remove && i < SHM_REGIONS_MAX; i++) {
        free(h->file->shm[i]);
        h->file->shm[i] = NULL;
    }
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {.iVersion = 2,
                                           .xClose = file_close,
                                           .xRead = file_read,
                                           .xWrite = file_write,
                                           .xTruncate = file_truncate,
                                           .xSync = file_sync,
                                           .xFileSize = file_size,
                                           .xLock = file_lock,
                                           .xUnlock = file_unlock,
                                           .xCheckReservedLock = file_check_reserved,
                                           .xFileControl = file_control,
                                           .xSectorSize = file_sector_size,
                                           .xDeviceCharacteristics = file_characteristics,
                                           .xShmMap = shm_map,
                                           .xShmLock = shm_lock,
                                           .xShmBarrier = shm_barrier,
                                           .xShmUnmap = shm_unmap};

/* ---- VFS methods -------------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags,
                    int *out_flags)
{
    (void)vfs;
    struct handle *h = (struct handle *)base;
    memset(h, 0, sizeof *h);
    if (fails()) return SQLITE_CANTOPEN;
    struct disk_file *f = name ? find(name) : NULL;
    if (!f) {
        if (!(flags & SQLITE_OPEN_CREATE)) return SQLITE_CANTOPEN;
        for (int i = 0; i < FILES_MAX && !f; i++)
            if (!files[i].exists) f = &files[i];
        if (!f) return SQLITE_CANTOPEN;
        f->exists = 1;
        strncpy(f->name, name ? name : "", sizeof f->name - 1);
    }
    f->opens++;
    h->file = f;
    h->delete_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
    h->base.pMethods = &methods;
    if (out_flags) *out_flags = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    (void)sync;
    struct disk_file *f = find(name);
    if (fails()) return SQLITE_IOERR_DELETE;
    if (!f) return SQLITE_IOERR_DELETE_NOENT;
    remove_file(f);
    return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    (void)vfs;
    (void)flags;
    if (fails()) return SQLITE_IOERR_ACCESS;
    struct disk_file *f = find(name);
    *out = f && f->now.size > 0;
    return SQLITE_OK;
}

static int vfs_full_pathname(sqlite3_vfs *vfs, const char *name, int size, char *out)
{
    (void)vfs;
    strncpy(out, name, (size_t)size - 1);
    out[size - 1] = '\0';
    return SQLITE_OK;
}

void fault_vfs_reset(void)
{
    static sqlite3_vfs own;
    for (int i = 0; i < FILES_MAX; i++) {
        if (files[i].opens) abort();
        remove_file(&files[i]);
    }
    int registered = fault.registered;
    memset(&fault, 0, sizeof fault);
    fault.space = UINT64_MAX;
    fault.registered = 1;
    if (registered) return;
    own = *sqlite3_vfs_find(NULL); /* time, sleep and randomness stay the system's */
    own.zName = FAULT_VFS_NAME;
    own.szOsFile = sizeof(struct handle);
    own.pNext = NULL;
    own.xOpen = vfs_open;
    own.xDelete = vfs_delete;
    own.xAccess = vfs_access;
    own.xFullPathname = vfs_full_pathname;
    if (sqlite3_vfs_register(&own, 0) != SQLITE_OK) abort();
}

void fault_vfs_set(enum fault_kind kind, uint64_t after, uint64_t seed)
{
    fault.kind = kind;
    fault.left = after;
    fault.seed = seed;
    fault.calls = 0;
    fault.fired = 0;
}

uint64_t fault_vfs_calls(void)
{
    return fault.calls;
}

int fault_vfs_fired(void)
{
    return fault.fired;
}

void fault_vfs_set_space(uint64_t bytes)
{
    fault.space = bytes;
}

uint64_t fault_vfs_bytes(void)
{
    uint64_t total = 0;
    for (int i = 0; i < FILES_MAX; i++)
        if (files[i].exists) total += files[i].now.size;
    return total;
}

void fault_vfs_power_on(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        struct disk_file *f = &files[i];
        if (!f->exists) continue;
        if (f->opens) abort();
        if (fault.kind == FAULT_KILL) {
            make_durable(f); /* sooner or later */
        } else {
            f->now.size = 0;
            if (f->durable.size) bytes_write(&f->now, 0, f->durable.data, f->durable.size);
        }
        for (int k = 0; k < SHM_REGIONS_MAX; k++) {
            free(f->shm[k]);
            f->shm[k] = NULL;
        }
        f->shared = f->reserved = f->exclusive = 0;
        memset(f->shm_shared, 0, sizeof f->shm_shared);
        memset(f->shm_exclusive, 0, sizeof f->shm_exclusive);
    }
    fault.kind = FAULT_NONE;
    fault.dead = 0;
}

/* ---- copies of the disk ------------------------------------------------------------- */

static struct {
    char name[512];
    struct bytes bytes;
} copies[FILES_MAX];

static void set_content(struct bytes *to, const struct bytes *from)
{
    to->size = 0;
    if (from->size) bytes_write(to, 0, from->data, from->size);
}

void fault_vfs_keep(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (files[i].opens) abort();
        memset(copies[i].name, 0, sizeof copies[i].name);
        if (files[i].exists) memcpy(copies[i].name, files[i].name, sizeof copies[i].name);
        set_content(&copies[i].bytes, &files[i].now);
    }
}

void fault_vfs_bring_back(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (files[i].opens) abort();
        remove_file(&files[i]);
        if (!copies[i].name[0]) continue;
        files[i].exists = 1;
        memcpy(files[i].name, copies[i].name, sizeof files[i].name);
        set_content(&files[i].now, &copies[i].bytes);
        set_content(&files[i].durable, &copies[i].bytes);
    }
}
