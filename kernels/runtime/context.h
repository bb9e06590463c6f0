// A suspended computation: a stack and where it stands on it.
#pragma once

#include <stddef.h>

namespace simt {

// Save the running computation's stack pointer in *from and go on where `to` was left.
extern "C" void simt_switch(void** from, void* to);

// A stack pointer that, when switched to, enters `body` (which must not return).
void* prepare_stack(char* low, size_t nbytes, void (*body)());

}  // namespace simt
