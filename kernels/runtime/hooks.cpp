// What the compiler calls in checked builds: -fsanitize=thread before every access to memory,
// -fsanitize=bounds and alignment when an index or an address is wrong. No sanitizer's own
// library is linked; these are the only definitions.
#include "shadow.h"

namespace {

// what: "reads 16 bytes as Pack".
[[noreturn]] void report_misaligned(const char* what, const void* address, size_t alignment,
                                    uint64_t pc, simt::Site site) {
    const char* element = simt::element_at(address);
    simt::fail(SIMT_MISALIGNED, pc, site,
               "%s%s%s at {0}: the address …%03llx is no multiple of %zu", what,
               element == nullptr ? "" : " at ", element == nullptr ? "" : element,
               (unsigned long long)((uintptr_t)address & 0xfff), alignment);
}

inline void check(const void* address, size_t nbytes, simt::Access access, uint64_t pc) {
    if (nbytes > 1 && nbytes <= 16 && ((uintptr_t)address & (nbytes - 1)) != 0 &&
        (nbytes & (nbytes - 1)) == 0 && !simt::on_current_stack(address)) {
        char what[48];
        snprintf(what, sizeof what, "%s %zu bytes", simt::verb(access), nbytes);
        report_misaligned(what, address, nbytes, pc, simt::Site{});
    }
    simt::check_access(address, nbytes, access, pc, simt::Site{});
}

struct SourceLocation {
    const char* file;
    uint32_t line, column;
};

}  // namespace

using simt::Access;

#define PC ((uint64_t)(uintptr_t)__builtin_return_address(0))
#define HOOKS(nbytes)                                                                      \
    void __tsan_read##nbytes(void* a) { check(a, nbytes, Access::kRead, PC); }             \
    void __tsan_write##nbytes(void* a) { check(a, nbytes, Access::kWrite, PC); }           \
    void __tsan_volatile_read##nbytes(void* a) {                                           \
        simt::take_turns();                                                                \
        check(a, nbytes, Access::kVolatileRead, PC);                                       \
    }                                                                                      \
    void __tsan_volatile_write##nbytes(void* a) {                                          \
        check(a, nbytes, Access::kVolatileWrite, PC);                                      \
    }                                                                                      \
    void __tsan_read_write##nbytes(void* a) {                                              \
        check(a, nbytes, Access::kRead, PC);                                               \
        check(a, nbytes, Access::kWrite, PC);                                              \
    }                                                                                      \
    void __tsan_unaligned_read##nbytes(void* a) {                                          \
        simt::check_access(a, nbytes, Access::kRead, PC, simt::Site{});                    \
    }                                                                                      \
    void __tsan_unaligned_write##nbytes(void* a) {                                         \
        simt::check_access(a, nbytes, Access::kWrite, PC, simt::Site{});                   \
    }                                                                                      \
    void __tsan_unaligned_read_write##nbytes(void* a) {                                    \
        simt::check_access(a, nbytes, Access::kRead, PC, simt::Site{});                    \
        simt::check_access(a, nbytes, Access::kWrite, PC, simt::Site{});                   \
    }

extern "C" {
#pragma GCC visibility push(hidden)

HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)

void __tsan_read_range(void* a, size_t n) {
    simt::check_access(a, n, Access::kRead, PC, simt::Site{});
}
void __tsan_write_range(void* a, size_t n) {
    simt::check_access(a, n, Access::kWrite, PC, simt::Site{});
}
extern const int simt_copies_structs __attribute__((visibility("default")));
// At -O0 clang copies structs with memcpy, whose hook does not know the alignment that was
// promised. Sixteen bytes are taken for a vector: the only access of that size a GPU has.
static void check_vector(const void* address, size_t n, Access access, uint64_t pc) {
    if (!simt_copies_structs) return;
    if (n == 16 && ((uintptr_t)address & 15) != 0 && !simt::on_current_stack(address))
        report_misaligned(access == Access::kRead ? "reads 16 bytes" : "writes 16 bytes", address,
                          16, pc, simt::Site{});
}
void* __tsan_memcpy(void* to, const void* from, size_t n) {
    check_vector(from, n, Access::kRead, PC);
    check_vector(to, n, Access::kWrite, PC);
    if (n > 0) simt::check_access(from, n, Access::kRead, PC, simt::Site{});
    if (n > 0) simt::check_access(to, n, Access::kWrite, PC, simt::Site{});
    return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
    if (n > 0) simt::check_access(from, n, Access::kRead, PC, simt::Site{});
    if (n > 0) simt::check_access(to, n, Access::kWrite, PC, simt::Site{});
    return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
    if (n > 0) simt::check_access(to, n, Access::kWrite, PC, simt::Site{});
    return memset(to, value, n);
}
// The same three under the names that the build gives plain calls of them.
void* __wrap_memcpy(void* to, const void* from, size_t n) {
    check_vector(from, n, Access::kRead, PC);
    check_vector(to, n, Access::kWrite, PC);
    if (n > 0) simt::check_access(from, n, Access::kRead, PC, simt::Site{});
    if (n > 0) simt::check_access(to, n, Access::kWrite, PC, simt::Site{});
    return memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, size_t n) {
    if (n > 0) simt::check_access(from, n, Access::kRead, PC, simt::Site{});
    if (n > 0) simt::check_access(to, n, Access::kWrite, PC, simt::Site{});
    return memmove(to, from, n);
}
void* __wrap_memset(void* to, int value, size_t n) {
    if (n > 0) simt::check_access(to, n, Access::kWrite, PC, simt::Site{});
    return memset(to, value, n);
}
void __tsan_init(void) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

static void outside(void* data, uintptr_t index) {
    const SourceLocation* at = (const SourceLocation*)data;
    const char* type = *(const char**)((const char*)data + sizeof(SourceLocation));
    simt::fail(SIMT_OUT_OF_BOUNDS, 0, simt::Site{at->file, (int)at->line},
               "index %lld at {0} is outside an array of type %s", (long long)index, type + 4);
}
// The name in "'const struct Pack'", as the compiler writes types.
static void plain_type(char* name, size_t size, const char* type) {
    static const char* const marks[] = {"'", "const ", "volatile ", "struct ", "class "};
    for (const char* mark : marks)
        if (strncmp(type, mark, strlen(mark)) == 0) type += strlen(mark);
    snprintf(name, size, "%s", type);
    size_t length = strlen(name);
    if (length > 0 && name[length - 1] == '\'') name[length - 1] = '\0';
}
static void misaligned(void* data, uintptr_t address) {
    const SourceLocation* at = (const SourceLocation*)data;
    const char* rest = (const char*)data + sizeof(SourceLocation);
    const char* type = *(const char* const*)rest;
    unsigned log_alignment = ((const unsigned char*)rest)[sizeof(void*)];
    unsigned kind = ((const unsigned char*)rest)[sizeof(void*) + 1];
    unsigned alignment = 1u << log_alignment;
    // 0: a load, 1: a store; 2: a reference, which a copy reads through when it is const.
    bool reads = kind == 0 || (kind == 2 && strstr(type + 4, "const ") != nullptr);
    const char* does = reads ? "reads" : kind == 1 ? "writes" : "accesses";
    char name[120], what[200];
    plain_type(name, sizeof name, type + 4);
    if (alignment >= 16) snprintf(what, sizeof what, "%s %u bytes as %s", does, alignment, name);
    else snprintf(what, sizeof what, "%s a %s", does, name);
    report_misaligned(what, (const void*)address, alignment, 0,
                      simt::Site{at->file, (int)at->line});
}
void __ubsan_handle_out_of_bounds(void* data, uintptr_t index) { outside(data, index); }
void __ubsan_handle_out_of_bounds_abort(void* data, uintptr_t index) { outside(data, index); }
void __ubsan_handle_type_mismatch_v1(void* data, uintptr_t at) { misaligned(data, at); }
void __ubsan_handle_type_mismatch_v1_abort(void* data, uintptr_t at) { misaligned(data, at); }

#pragma GCC visibility pop
}
