// What fences and atomics put in order: the accesses of a thread before a fence come before those
// of whoever later meets the value of an atomic that followed the fence.
#pragma once

#include "machine.h"

namespace simt {

void order_begin_launch();
void order_begin_block();
void order_fence(bool whole_grid);
// The running thread changes, or looks at, what lies there: it learns what was done before the
// values that it may find, and, when it changes it after a fence, passes on what it knows.
// `shared`: of the block's own memory, which the next block finds fresh.
void order_meet(const void* address, bool changes, bool shared);
// Whether the running thread has learnt of an access at `time` by thread `other` of its own block
// or of one before.
bool order_covers(uint16_t other, uint32_t time, uint32_t block_start);

}  // namespace simt
