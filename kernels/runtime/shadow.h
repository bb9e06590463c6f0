// Who touched which bytes last, and when: what races and uninitialised reads are found by.
#pragma once

#include "machine.h"

namespace simt {

// Flags of a cell. kWatched: a reader was volatile, as those of a flag are; one bit for each.
constexpr uint16_t kWritten = 1, kAtomicWrite = 2, kWatched = 4;
constexpr int kReaders = 3;  // two of the last block that reads it, and one of blocks before

struct Cell {
    uint32_t write_time, write_pc;  // relative to the module; 0: written by the host
    uint32_t add_time, add_pc;  // of the last atomic of a block before, where later ones followed
    uint32_t read_time[kReaders], read_pc[kReaders];
    uint16_t writer, adder, reader[kReaders];
    uint16_t flags;
};

struct Region {
    const char* name;
    char* base;
    size_t nbytes;
    unsigned shift;  // log2 of the bytes that share a cell
    int role;
    bool shared;
    Cell* cells;
    size_t cell_bytes;
    bool untyped;  // a variable, of which only the bytes are known
};

// "reads", "writes", "atomically changes".
const char* verb(Access access);
// "dst[96]", in one of a few static buffers.
const char* element_name(const Region& region, size_t offset);

void shadow_begin_launch();
void shadow_begin_block();
// An access to bytes that are the region's: is it in order with those before it? Note it.
void shadow_touch(const Region& region, size_t offset, size_t nbytes, Access access, uint64_t pc);
// Before the next access: did a write that met another thread's change its value?
void shadow_settle();
// The thread waits at a barrier or ends: was a read that met atomics the first of a loop around
// atomicCAS, which reads again?
void shadow_settle_reads(Thread* thread);

}  // namespace simt
