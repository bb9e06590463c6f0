// Switching stacks by hand: a few nanoseconds, where swapcontext makes a system call each time.
#include "context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch, @function
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size simt_switch, . - simt_switch
)");

void* simt::prepare_stack(char* low, size_t nbytes, void (*body)()) {
    uintptr_t top = ((uintptr_t)low + nbytes) & ~(uintptr_t)15;
    uint64_t* frame = (uint64_t*)top - 8;  // six registers, the address, and what `call` pushes
    memset(frame, 0, 8 * sizeof(uint64_t));
    frame[6] = (uint64_t)(uintptr_t)body;
    return frame;
}

#elif defined(__aarch64__)

asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch, %function
simt_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size simt_switch, . - simt_switch
)");

void* simt::prepare_stack(char* low, size_t nbytes, void (*body)()) {
    uintptr_t top = ((uintptr_t)low + nbytes) & ~(uintptr_t)15;
    uint64_t* frame = (uint64_t*)top - 20;
    memset(frame, 0, 20 * sizeof(uint64_t));
    frame[11] = (uint64_t)(uintptr_t)body;  // x30
    return frame;
}

#else

#include <ucontext.h>

// Elsewhere the portable way: the "stack pointer" is the address of a ucontext that lives at the
// top of its stack (of the switching function's frame, for the scheduler).
extern "C" void simt_switch(void** from, void* to) {
    ucontext_t here;
    *from = &here;
    swapcontext(&here, (ucontext_t*)to);
}

void* simt::prepare_stack(char* low, size_t nbytes, void (*body)()) {
    uintptr_t top = ((uintptr_t)low + nbytes - sizeof(ucontext_t)) & ~(uintptr_t)63;
    ucontext_t* context = (ucontext_t*)top;
    getcontext(context);
    context->uc_stack.ss_sp = low;
    context->uc_stack.ss_size = top - (uintptr_t)low;
    context->uc_link = nullptr;
    makecontext(context, body, 0);
    return context;
}

#endif
