/* A disk in memory for SQLite that fails on request: the n-th call, all calls
 * from then on, when it is full, or by a power cut that keeps what was synced
 * and some of the rest, sector by sector. One process, one thread. */
#ifndef DL_TESTS_FAULT_VFS_H
#define DL_TESTS_FAULT_VFS_H

#include <stdint.h>

#define FAULT_VFS_NAME "fault"

enum fault_kind {
    FAULT_NONE,
    FAULT_ONCE,  /* one call fails with an I/O error */
    FAULT_STUCK, /* that call and all later ones */
    FAULT_CUT,   /* the power goes: later calls fail, and fault_vfs_power_on shows what is left */
    FAULT_KILL   /* the process goes: the same, but all that was written is there */
};

/* Registers the VFS (again: no effect) and empties the disk. No file may be open. */
void fault_vfs_reset(void);
/* The call number `after` from now on (1: the next) fails. `seed` decides what
 * of the unsynced writes survives a cut. */
void fault_vfs_set(enum fault_kind kind, uint64_t after, uint64_t seed);
/* Calls since the last fault_vfs_set, and whether its fault happened. */
uint64_t fault_vfs_calls(void);
int fault_vfs_fired(void);
/* Bytes that fit on the disk; writes beyond fail with SQLITE_FULL. UINT64_MAX: no limit. */
void fault_vfs_set_space(uint64_t bytes);
uint64_t fault_vfs_bytes(void);
/* After a cut or a kill, with every file closed: the disk as it is found. */
void fault_vfs_power_on(void);
/* With every file closed: remembers what is on the disk, and puts it back. */
void fault_vfs_keep(void);
void fault_vfs_bring_back(void);

#endif
