/* How fast a disk reads and writes, for what parallel.offload keeps in a file. */
#ifndef TRAIN_BENCH_DISK_SPEED_H
#define TRAIN_BENCH_DISK_SPEED_H

#include "base/status.h"

/* Writes a file of 256 MiB into the folder, waits until the disk has it, reads it from there, and removes it. *bytes_per_s: those
 * written and read, by the time of both. ST_IO: the folder cannot be written, or has no room. */
status disk_speed(const char *folder, double *bytes_per_s, err *e) ATH_MUST_USE;

#endif
