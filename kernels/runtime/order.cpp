// Who knows of what, by atomics.
//
// Every address that is changed after a fence has a story: the list of those changes, each with
// what its thread knew. Later changes stand behind earlier ones, so "has met the value" is the
// length that the story had by then: a thread's knowledge is one number for each address.
#include "order.h"

#include <stdlib.h>

namespace simt {
namespace {

constexpr uint32_t kNone = ~0u;
constexpr size_t kMostEvents = 4u << 20;  // past it all is forgotten, and what came before forgiven

// How far into the story of an address somebody has read.
struct Known {
    uint32_t story, length;
};

// A change after a fence. What came before its three times is passed on: accesses of the thread itself,
// of the whole block (its last barrier before the fence), of the warp (its last __syncwarp).
struct Event {
    uint32_t block_start, own, block, warp;
    uint16_t thread;
    bool whole_grid;
    uint32_t known_begin, known_count;  // of other stories, in `passed_on`
};

template <typename T> struct List {
    T* items;
    size_t count, capacity;
    T& add(const T& item) {
        if (count == capacity) {
            capacity = capacity == 0 ? 2 : 2 * capacity;
            items = (T*)realloc(items, capacity * sizeof(T));
            if (items == nullptr) abort();
        }
        items[count] = item;
        return items[count++];
    }
};

struct Story {
    const void* address;
    uint32_t block_start;  // of the block whose shared memory it is; 0: global memory
    List<Event> events;
    bool refers;    // some event knows of other stories
    uint32_t read;  // by the search that is going on: up to here nothing was found
    uint32_t search;
};

// What a thread of the running block has learnt, and when: others learn it at the next barrier.
struct Lesson {
    uint32_t story;
    uint32_t length, time;            // the last time
    uint32_t old_length, old_time;    // the last one before a barrier
    uint32_t next;                    // of the same thread
};

List<Story> stories;
List<Known> passed_on;
List<Lesson> lessons;
uint32_t first_lesson[kMaxThreads];
uint32_t* table;  // of stories, by address
size_t table_size;
size_t events;
uint32_t searches;
uint32_t forgiven;  // accesses up to here are in order with all that follow

size_t place_of(const void* address, uint32_t block_start) {
    uint64_t key = (uint64_t)(uintptr_t)address * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(key >> 20) & (table_size - 1);
    while (table[at] != kNone) {
        const Story& story = stories.items[table[at]];
        if (story.address == address && story.block_start == block_start) break;
        at = (at + 1) & (table_size - 1);
    }
    return at;
}

void grow_table() {
    table_size = table_size == 0 ? 1024 : 2 * table_size;
    table = (uint32_t*)realloc(table, table_size * sizeof(uint32_t));
    if (table == nullptr) abort();
    memset(table, 0xff, table_size * sizeof(uint32_t));
    for (size_t i = 0; i < stories.count; i++)
        table[place_of(stories.items[i].address, stories.items[i].block_start)] = (uint32_t)i;
}

uint32_t find_story(const void* address, uint32_t block_start, bool make) {
    if (2 * stories.count >= table_size) grow_table();
    size_t at = place_of(address, block_start);
    if (table[at] == kNone && make) {
        stories.add(Story{address, block_start, {}, false, 0, 0});
        table[at] = (uint32_t)stories.count - 1;
    }
    return table[at];
}

// Whether thread `of` had done something at `time` before the running thread went on.
bool settled(int of, uint32_t time) {
    int me = machine.current->id;
    if (of == me || time < machine.last_barrier) return true;
    if (of / kWarp != me / kWarp) return false;
    const WarpClock& clock = machine.warp[me / kWarp];
    return time < clock.all || time < clock.pair[me % kWarp][of % kWarp];
}

void learn(uint32_t story, uint32_t length) {
    uint16_t me = machine.current->id;
    uint32_t at = first_lesson[me];
    while (at != kNone && lessons.items[at].story != story) at = lessons.items[at].next;
    if (at == kNone) {
        lessons.add(Lesson{story, length, machine.now, 0, 0, first_lesson[me]});
        first_lesson[me] = (uint32_t)lessons.count - 1;
        return;
    }
    Lesson& lesson = lessons.items[at];
    if (lesson.length == length) return;
    if (lesson.time < machine.last_barrier) {
        lesson.old_length = lesson.length;
        lesson.old_time = lesson.time;
    }
    lesson.length = length;
    lesson.time = machine.now;
}

// How much of its story the running thread knows from this lesson of thread `of`.
uint32_t known_from(const Lesson& lesson, int of) {
    if (settled(of, lesson.time)) return lesson.length;
    return lesson.old_length > 0 && settled(of, lesson.old_time) ? lesson.old_length : 0;
}

template <typename F> bool any_lesson(F wanted) {
    for (int of = 0; of < machine.threads; of++)
        for (uint32_t at = first_lesson[of]; at != kNone; at = lessons.items[at].next) {
            uint32_t length = known_from(lessons.items[at], of);
            if (length > 0 && wanted(lessons.items[at].story, length)) return true;
        }
    return false;
}

// How many of a story's events were before the end of the block that began then: blocks run one
// after the other, and so do their events.
uint32_t events_until(const Story& story, uint32_t length, uint32_t block_start) {
    uint32_t low = 0, high = length;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (story.events.items[middle].block_start <= block_start) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool told(uint32_t which, uint32_t length, uint16_t other, uint32_t time, uint32_t block_start,
          int depth) {
    Story& story = stories.items[which];
    if (story.search != searches) story.search = searches, story.read = 0;
    uint32_t end = length;
    if (!story.refers) end = events_until(story, length, block_start);
    for (uint32_t i = end; i > story.read; i--) {
        const Event& event = story.events.items[i - 1];
        bool same_block = event.block_start == block_start;
        if (!same_block && !story.refers) break;
        bool reaches = event.whole_grid || event.block_start == machine.block_start;
        if (same_block && reaches &&
            ((event.thread == other && time < event.own) || time < event.block ||
             (event.thread / kWarp == other / kWarp && time < event.warp)))
            return true;
        for (uint32_t j = 0; reaches && depth < 8 && j < event.known_count; j++) {
            Known known = passed_on.items[event.known_begin + j];
            if (told(known.story, known.length, other, time, block_start, depth + 1)) return true;
        }
    }
    if (length > story.read) story.read = length;
    return false;
}

void pass_on(Story& story, const Thread* thread, const Fence& fence, bool whole_grid,
             Known others) {
    story.events.add(Event{machine.block_start, fence.time, fence.barrier, fence.warp, thread->id,
                           whole_grid, others.story, others.length});
    events++;
}

}  // namespace

void order_begin_launch() {
    for (size_t i = 0; i < stories.count; i++) free(stories.items[i].events.items);
    stories.count = passed_on.count = events = 0;
    forgiven = 0;
    if (table_size > 0) memset(table, 0xff, table_size * sizeof(uint32_t));
}

void order_begin_block() {
    lessons.count = 0;
    memset(first_lesson, 0xff, sizeof first_lesson);
}

void order_fence(bool whole_grid) {
    Thread* thread = machine.current;
    Fence fence{++machine.now, machine.last_barrier, machine.warp[thread->id / kWarp].all};
    thread->block_fence = fence;
    if (whole_grid) thread->fence = fence;
}

void order_meet(const void* address, bool changes, bool shared) {
    Thread* thread = machine.current;
    bool passes = changes && thread->block_fence.time != 0;
    uint32_t which = find_story(address, shared ? machine.block_start : 0, passes);
    if (which == kNone) return;
    uint32_t length = (uint32_t)stories.items[which].events.count;
    if (length > 0) learn(which, length);
    if (!passes) return;
    if (events > kMostEvents || passed_on.count > kMostEvents) {
        order_begin_launch();
        order_begin_block();
        forgiven = machine.now;
        return;
    }
    uint32_t begin = (uint32_t)passed_on.count;
    any_lesson([which](uint32_t story, uint32_t known) {
        if (story != which) passed_on.add(Known{story, known});
        return false;
    });
    Story& story = stories.items[which];
    Known others{begin, (uint32_t)passed_on.count - begin};
    if (others.length > 0) story.refers = true;
    if (thread->fence.time != 0 && thread->fence.time != thread->block_fence.time)
        pass_on(story, thread, thread->fence, true, others);
    pass_on(story, thread, thread->block_fence, thread->block_fence.time == thread->fence.time,
            others);
    // All write, all fence, and after a barrier one of them changes the ticket for all.
    bool all = thread->fence.barrier < machine.last_barrier;
    int low = all ? 0 : thread->id / kWarp * kWarp, high = all ? machine.threads : low + kWarp;
    for (int i = low; i < high && i < machine.threads; i++) {
        Thread& other = machine.thread[i];
        bool old = other.fence_story == which && other.fence_told == other.fence.time;
        if (other.fence.time == 0 || old || &other == thread || !settled(i, other.fence.time))
            continue;
        other.fence_story = which;
        other.fence_told = other.fence.time;
        pass_on(story, &other, Fence{other.fence.time, 0, 0}, true, Known{0, 0});
    }
    learn(which, (uint32_t)story.events.count);
}

bool order_covers(uint16_t other, uint32_t time, uint32_t block_start) {
    if (time <= forgiven) return true;
    if (lessons.count == 0) return false;
    searches++;
    return any_lesson([=](uint32_t story, uint32_t length) {
        return told(story, length, other, time, block_start, 0);
    });
}

}  // namespace simt
