/* Runs one launch of a compiled kernel: a fiber for every GPU thread, on one thread of the host.

   A fiber runs until it waits (block barrier, warp operation, grid sync), gives way, or ends. The
   scheduler then picks the next, in an order that the launch asks for. The first fault ends the
   launch; what happened is left in the launch's `fault`, for Python to put in words.

   Races are found by happens-before: block barriers advance an epoch of the block, grid syncs one
   of the grid, and inside a warp every lane knows up to which clock it has seen each other lane.
   Votes, shuffles and matches do not order memory, as CUDA's manual says. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define EXPORT __attribute__((visibility("default")))
enum { LANES = 32, PAGE = 4096, RESIDENT = 4, GUARDED = 16384, SHARED_GAP = 1 << 17 };

enum Schedule { IN_ORDER, REVERSED, RANDOM };
enum Check { NO_CHECK, MEMORY, RACES };
enum Access { LOAD, STORE, ATOMIC };
enum State { READY, AT_BARRIER, AT_WARP, AT_GRID, ENDED };
enum Operation { VOTE, SHUFFLE, SYNC, MATCH_ANY, MATCH_ALL };

/* The same numbers and fields are in _machine.py. */
enum FaultKind {
    NO_FAULT, OUT_OF_BOUNDS, RACE, UNWRITTEN, BARRIER_AFTER_EXIT, EXIT_AT_BARRIER,
    BARRIERS_DIFFER, LANE_NOT_IN_MASK, MASK_NAMES_EXITED, WARP_DIVERGED, GRID_NOT_COOPERATIVE,
    DEADLOCK, TIMEOUT, NO_MEMORY, TRAP
};
enum Counter {
    GLOBAL_LOADS, GLOBAL_STORES, GLOBAL_ATOMICS, SHARED_LOADS, SHARED_STORES, SHARED_ATOMICS,
    BARRIERS, WARP_OPERATIONS, GRID_SYNCS, N_COUNTERS
};

typedef struct { int32_t site; int32_t access; uint64_t block; uint32_t thread; } Place;
typedef struct {
    int32_t kind; int32_t range;  /* number of the array, or -1: shared memory */
    Place here, other;
    uint64_t address, size;
    uint32_t mask, waiting[3];
} Fault;
typedef struct { uint64_t low, high, grain; } Range;
typedef struct {
    uint32_t grid[3], block[3];
    uint64_t static_shared, dynamic_shared, shared_grain, stack, seed;
    int32_t cooperative, schedule, check, n_ranges;
    double timeout;
    const Range *ranges;
    uint64_t counters[N_COUNTERS];
    Fault fault;
} Launch;

typedef struct Thread {
    void *sp;
    char *stack;
    struct Warp *warp;
    struct Block *block;
    uint32_t number, lane, x, y, z, clock;
    enum State state;
    enum Operation operation;
    int32_t site, mode;
    uint32_t mask, b, c;
    uint64_t in, out;
#ifndef __x86_64__
    ucontext_t context;
#endif
} Thread;
typedef struct Warp {
    Thread *lane[LANES];
    uint32_t alive, clock;
    uint32_t seen[LANES][LANES];  /* seen[l][k]: lane l is ordered after lane k up to this clock */
} Warp;
typedef struct Block {
    uint64_t id;
    uint32_t x, y, z, epoch;
    uint32_t alive, waiting, kind, result;
    int32_t site;
    Thread *threads;
    Warp *warps;
    char *shared, *stacks;
} Block;

/* Last write and last reads of one grain of memory. Blocks are counted from 1: 0 is "none". */
typedef struct {
    uint32_t block, grid, epoch, clock;
    int32_t site;
    uint16_t thread;
    uint8_t atomic;
} Write;
typedef struct {
    uint32_t block, grid, epoch, clock, mask;
    int32_t site;
    uint16_t thread;
    uint8_t spread;  /* 0: lanes of one warp, 1: several warps, 2: several blocks */
} Read;
typedef struct { Write write; Read read; } Cell;
typedef struct { Cell *cells; uint64_t n; } Shadow;

typedef void (*Entry)(void *arguments);
typedef struct {
    Launch *launch;
    Entry entry;
    void *arguments;
    Block *blocks;
    char *shared;
    Shadow *shadows;
    Cell *shared_cells;
    uint64_t random, shared_size, shared_stride, shared_n, accesses, next_block, n_blocks;
    uint32_t per_block, n_warps, resident, grid_waiting, grid_epoch;
    int32_t last_range;
    struct timespec start;
    void *sp;
#ifndef __x86_64__
    ucontext_t context;
#endif
} Machine;

static __thread Machine *machine;
static __thread Thread *self;

/* ---- fibers */

#ifdef __x86_64__
/* Saves what a callee must keep, and goes on where the other side left off. */
void simt_switch(void **from, void *to);
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        ".type simt_switch, @function\n"
        "simt_switch:\n"
        "  pushq %r15\n  pushq %r14\n  pushq %r13\n  pushq %r12\n  pushq %rbx\n  pushq %rbp\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %rbp\n  popq %rbx\n  popq %r12\n  popq %r13\n  popq %r14\n  popq %r15\n"
        "  ret\n"
        ".size simt_switch, .-simt_switch\n");
static void pause_fiber(void) { simt_switch(&self->sp, machine->sp); }
static void resume_fiber(void) { simt_switch(&machine->sp, self->sp); }
#else
static void pause_fiber(void) { swapcontext(&self->context, &machine->context); }
static void resume_fiber(void) { swapcontext(&machine->context, &self->context); }
#endif

static Place here(int32_t site, int32_t access) {
    return (Place){site, access, self->block->id, self->number};
}

/* Ends the launch; does not return to the fiber. */
static void fail(enum FaultKind kind, int32_t site) {
    Fault *fault = &machine->launch->fault;
    if (fault->kind == NO_FAULT) {
        fault->kind = kind;
        fault->here = here(site, fault->here.access);
    }
    pause_fiber();
    abort();
}

static void fail_beside(enum FaultKind kind, int32_t site, const Thread *other) {
    machine->launch->fault.other = (Place){other->site, -1, other->block->id, other->number};
    machine->launch->fault.mask = other->mask;
    fail(kind, site);
}

static uint64_t next_random(void) {  /* xorshift64* */
    uint64_t x = machine->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    machine->random = x;
    return (x * 0x2545F4914F6CDD1Dull) >> 32;
}

static void give_way(void) {
    if (machine->launch->schedule == RANDOM) pause_fiber();
}

/* ---- block barriers */

static void release_barrier(Block *block) {
    machine->launch->counters[BARRIERS]++;
    block->waiting = 0;
    block->epoch++;
    for (uint32_t i = 0; i < machine->per_block; i++)
        if (block->threads[i].state == AT_BARRIER) {
            block->threads[i].state = READY;
            block->threads[i].out = block->result;
        }
}

enum { PLAIN, COUNT, ALL, ANY };

static uint32_t barrier(uint32_t kind, uint32_t predicate, int32_t site) {
    Block *block = self->block;
    if (block->alive < machine->per_block) fail(BARRIER_AFTER_EXIT, site);
    if (block->waiting == 0) {
        block->kind = kind;
        block->site = site;
        block->result = kind == ALL;
    } else if (block->site != site) {
        machine->launch->fault.other = (Place){block->site, -1, block->id, 0};
        fail(BARRIERS_DIFFER, site);
    }
    if (kind == COUNT) block->result += predicate != 0;
    if (kind == ALL) block->result &= predicate != 0;
    if (kind == ANY) block->result |= predicate != 0;
    self->state = AT_BARRIER;
    self->site = site;
    if (++block->waiting == block->alive) release_barrier(block);
    /* The last to come does not run on: the order among them is the scheduler's. */
    pause_fiber();
    return (uint32_t)self->out;
}

EXPORT void simt_barrier(int32_t site) { barrier(PLAIN, 0, site); }
EXPORT uint32_t simt_barrier_popc(uint32_t p, int32_t site) { return barrier(COUNT, p, site); }
EXPORT uint32_t simt_barrier_and(uint32_t p, int32_t site) { return barrier(ALL, p, site); }
EXPORT uint32_t simt_barrier_or(uint32_t p, int32_t site) { return barrier(ANY, p, site); }

/* ---- warp operations */

static uint64_t pair(uint32_t value, bool flag) { return (uint64_t)flag << 32 | value; }

static uint64_t shuffled(const Warp *warp, const Thread *thread) {
    /* As PTX defines shfl.sync: c holds the segment mask above and the clamp below. */
    uint32_t segment = thread->c >> 8 & 31, clamp = thread->c & 31, offset = thread->b & 31;
    uint32_t lane = thread->lane;
    int top = (int)((lane & segment) | (clamp & ~segment)), from;
    bool inside;
    switch (thread->mode) {
    case 1: from = (int)lane - (int)offset; inside = from >= top; break;
    case 2: from = (int)(lane + offset); inside = from <= top; break;
    case 3: from = (int)(lane ^ offset); inside = from <= top; break;
    default: from = (int)((lane & segment) | (offset & ~segment)); inside = from <= top; break;
    }
    if (!inside) from = (int)lane;
    /* A lane that takes no part has no value to give. */
    uint32_t value = thread->mask >> from & 1 ? (uint32_t)warp->lane[from]->in : 0xDEADBEEFu;
    return pair(value, inside);
}

static void order_lanes(Warp *warp, uint32_t mask) {
    uint32_t joined[LANES] = {0}, now = ++warp->clock;
    for (int l = 0; l < LANES; l++)
        if (mask >> l & 1)
            for (int k = 0; k < LANES; k++)
                if (warp->seen[l][k] > joined[k]) joined[k] = warp->seen[l][k];
    for (int l = 0; l < LANES; l++)
        if (mask >> l & 1) joined[l] = now - 1;
    for (int l = 0; l < LANES; l++)
        if (mask >> l & 1) {
            memcpy(warp->seen[l], joined, sizeof joined);
            warp->lane[l]->clock = now;
        }
}

static uint64_t warp_operation(enum Operation operation, uint32_t mask, int32_t mode, uint64_t in,
                               uint32_t b, uint32_t c, int32_t site) {
    Warp *warp = self->warp;
    machine->launch->fault.mask = mask;
    if (!(mask >> self->lane & 1)) fail(LANE_NOT_IN_MASK, site);
    if (mask & ~warp->alive) fail(MASK_NAMES_EXITED, site);
    self->operation = operation;
    self->mask = mask;
    self->mode = mode;
    self->in = in;
    self->b = b;
    self->c = c;
    self->site = site;
    self->state = AT_WARP;
    uint32_t votes = 0;
    bool all_here = true;
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1)) continue;
        const Thread *other = warp->lane[l];
        if (other->state != AT_WARP) {
            all_here = false;
            continue;
        }
        if (other->mask != mask || other->site != site) fail_beside(WARP_DIVERGED, site, other);
        if (other->in) votes |= 1u << l;
    }
    if (all_here) {
        machine->launch->counters[WARP_OPERATIONS]++;
        for (int l = 0; l < LANES; l++) {
            if (!(mask >> l & 1)) continue;
            Thread *thread = warp->lane[l];
            if (operation == VOTE) {
                bool holds = mode == 0 ? votes == mask
                           : mode == 1 ? votes != 0
                                       : votes == 0 || votes == mask;
                thread->out = mode == 3 ? pair(votes, false) : pair(0, holds);
            } else if (operation == SHUFFLE) {
                thread->out = shuffled(warp, thread);
            } else if (operation != SYNC) {
                uint32_t same = 0;
                for (int k = 0; k < LANES; k++)
                    if ((mask >> k & 1) && warp->lane[k]->in == thread->in) same |= 1u << k;
                bool all = same == mask;
                thread->out = operation == MATCH_ANY ? same : pair(all ? mask : 0, all);
            }
        }
        if (operation == SYNC && machine->launch->check == RACES) order_lanes(warp, mask);
        for (int l = 0; l < LANES; l++)
            if (mask >> l & 1) warp->lane[l]->state = READY;
    }
    pause_fiber();
    return self->out;
}

EXPORT uint64_t simt_vote(uint32_t mask, int32_t mode, uint32_t p, int32_t site) {
    return warp_operation(VOTE, mask, mode, p != 0, 0, 0, site);
}
EXPORT uint64_t simt_shuffle(uint32_t mask, int32_t mode, uint32_t value, uint32_t b, uint32_t c,
                             int32_t site) {
    return warp_operation(SHUFFLE, mask, mode, value, b, c, site);
}
EXPORT void simt_syncwarp(uint32_t mask, int32_t site) {
    warp_operation(SYNC, mask, 0, 0, 0, 0, site);
}
EXPORT uint32_t simt_match_any(uint32_t mask, uint64_t value, int32_t site) {
    return (uint32_t)warp_operation(MATCH_ANY, mask, 0, value, 0, 0, site);
}
EXPORT uint64_t simt_match_all(uint32_t mask, uint64_t value, int32_t site) {
    return warp_operation(MATCH_ALL, mask, 0, value, 0, 0, site);
}

/* ---- the grid */

EXPORT uint64_t simt_grid_handle(uint32_t kind) { return kind; }

EXPORT uint32_t simt_grid_sync(uint64_t handle, uint32_t flags, int32_t site) {
    (void)handle;
    (void)flags;
    Machine *m = machine;
    if (!m->launch->cooperative) fail(GRID_NOT_COOPERATIVE, site);
    self->state = AT_GRID;
    self->site = site;
    if (++m->grid_waiting == m->n_blocks * m->per_block) {
        m->launch->counters[GRID_SYNCS]++;
        m->grid_waiting = 0;
        m->grid_epoch++;
        for (uint32_t b = 0; b < m->resident; b++)
            for (uint32_t i = 0; i < m->per_block; i++) m->blocks[b].threads[i].state = READY;
    }
    pause_fiber();
    return 0;
}

/* ---- where a thread is */

#define REGISTER(name, value) EXPORT uint32_t simt_##name(void) { return (uint32_t)(value); }
REGISTER(tid_x, self->x)
REGISTER(tid_y, self->y)
REGISTER(tid_z, self->z)
REGISTER(ctaid_x, self->block->x)
REGISTER(ctaid_y, self->block->y)
REGISTER(ctaid_z, self->block->z)
REGISTER(ntid_x, machine->launch->block[0])
REGISTER(ntid_y, machine->launch->block[1])
REGISTER(ntid_z, machine->launch->block[2])
REGISTER(nctaid_x, machine->launch->grid[0])
REGISTER(nctaid_y, machine->launch->grid[1])
REGISTER(nctaid_z, machine->launch->grid[2])
REGISTER(warpsize, LANES)
REGISTER(laneid, self->lane)
REGISTER(lanemask_lt, (1u << self->lane) - 1)
/* Which lanes run together is not modelled: every lane that has not ended counts as active. */
REGISTER(activemask, self->warp->alive)
REGISTER(dynamic_shared, machine->launch->dynamic_shared)
EXPORT void *simt_shared(uint64_t offset) { return self->block->shared + offset; }
EXPORT void simt_give_way(void) { give_way(); }
EXPORT void simt_nanosleep(uint32_t ns) {
    (void)ns;
    pause_fiber();
}
/* Goes on by one with every access to memory that is checked. */
EXPORT uint64_t simt_clock(void) {
    uint64_t ticks = 0;
    for (int i = 0; i < BARRIERS; i++) ticks += machine->launch->counters[i];
    return ticks;
}
EXPORT void simt_trap(int32_t site) { fail(TRAP, site); }

/* ---- memory */

static bool write_before(const Write *w) {
    const Block *block = self->block;
    if (w->grid != machine->grid_epoch) return true;
    if (w->block != (uint32_t)block->id + 1) return false;
    if (w->epoch != block->epoch || w->thread == self->number) return true;
    if (w->thread / LANES != self->number / LANES) return false;
    return w->clock <= self->warp->seen[self->lane][w->thread % LANES];
}

static bool reads_before(const Read *r) {
    const Block *block = self->block;
    if (r->grid != machine->grid_epoch) return true;
    if (r->spread == 2 || r->block != (uint32_t)block->id + 1) return false;
    if (r->epoch != block->epoch) return true;
    if (r->spread == 1 || r->thread / LANES != self->number / LANES) return false;
    for (uint32_t l = 0; l < LANES; l++)
        if ((r->mask >> l & 1) && l != self->lane && r->clock > self->warp->seen[self->lane][l])
            return false;
    return true;
}

static void report_race(int32_t range, uint64_t address, uint64_t size, enum Access access,
                        int32_t site, Place other) {
    Fault *fault = &machine->launch->fault;
    fault->range = range;
    fault->address = address;
    fault->size = size;
    fault->here.access = access;
    fault->other = other;
    fail(RACE, site);
}

static void check_cell(Cell *cell, int32_t range, uint64_t address, uint64_t size,
                       enum Access access, int32_t site) {
    Write *w = &cell->write;
    Read *r = &cell->read;
    if (w->block && !(access == ATOMIC && w->atomic) && !write_before(w))
        report_race(range, address, size, access, site,
                    (Place){w->site, w->atomic ? ATOMIC : STORE, w->block - 1, w->thread});
    uint32_t block = (uint32_t)self->block->id + 1, epoch = self->block->epoch;
    if (access != LOAD) {
        if (r->block && !reads_before(r))
            report_race(range, address, size, access, site,
                        (Place){r->site, LOAD, r->block - 1, r->thread});
        *w = (Write){block, machine->grid_epoch, epoch, self->clock, site,
                     (uint16_t)self->number, access == ATOMIC};
        return;
    }
    if (range < 0 && !w->block) {
        machine->launch->fault.address = address;
        machine->launch->fault.size = size;
        fail(UNWRITTEN, site);
    }
    bool fresh = !r->block || reads_before(r);
    if (fresh) {
        *r = (Read){block, machine->grid_epoch, epoch, self->clock, 1u << self->lane, site,
                    (uint16_t)self->number, 0};
        return;
    }
    /* Several readers, none of them ordered before this one. */
    if (r->block != block) r->spread = 2;
    else if (r->thread / LANES != self->number / LANES && r->spread == 0) r->spread = 1;
    r->mask |= 1u << self->lane;
    if (self->clock > r->clock) r->clock = self->clock;
}

static int32_t find_range(uint64_t address, uint64_t size) {
    const Launch *launch = machine->launch;
    const Range *ranges = launch->ranges;
    int32_t last = machine->last_range;
    if (last >= 0 && address >= ranges[last].low && address + size <= ranges[last].high)
        return last;
    int32_t low = 0, high = launch->n_ranges;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (ranges[middle].high <= address) low = middle + 1;
        else high = middle;
    }
    if (low < launch->n_ranges && address >= ranges[low].low &&
        address + size <= ranges[low].high)
        return machine->last_range = low;
    return -1;
}

static void check_time(int32_t site) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - machine->start.tv_sec) +
                     1e-9 * (double)(now.tv_nsec - machine->start.tv_nsec);
    if (seconds > machine->launch->timeout) fail(TIMEOUT, site);
    pause_fiber();  /* A thread may be spinning until another writes. */
}

/* Called before every load, store and atomic operation of a checked kernel. */
EXPORT void simt_access(void *pointer, uint64_t size, int32_t access, int32_t site) {
    Machine *m = machine;
    Launch *launch = m->launch;
    uint64_t address = (uint64_t)pointer;
    if (address - (uint64_t)self->stack < launch->stack) return;
    uint64_t offset = address - (uint64_t)self->block->shared;
    bool shared = offset < m->shared_size;
    int32_t range = -1;
    if (shared ? offset + size > m->shared_size : (range = find_range(address, size)) < 0) {
        bool near = address - (uint64_t)m->shared < m->shared_stride * (m->resident + 1);
        launch->fault.range = near ? -1 : -2;
        launch->fault.address = address;
        launch->fault.size = size;
        launch->fault.here.access = access;
        fail(OUT_OF_BOUNDS, site);
    }
    launch->counters[(shared ? SHARED_LOADS : GLOBAL_LOADS) + access]++;
    if (launch->check == RACES) {
        Cell *cells = shared ? m->shared_cells + (uint64_t)(self->block - m->blocks) * m->shared_n
                             : m->shadows[range].cells;
        uint64_t grain = shared ? launch->shared_grain : launch->ranges[range].grain;
        if (!shared) offset = address - launch->ranges[range].low;
        for (uint64_t i = offset / grain; i <= (offset + size - 1) / grain; i++)
            check_cell(cells + i, range, address, size, access, site);
    }
    if ((++m->accesses & 0xFFFF) == 0) check_time(site);
    else if (launch->schedule == RANDOM && (access == ATOMIC || next_random() % 64 == 0))
        pause_fiber();
}

/* ---- threads, blocks, launch */

static void thread_main(void) {
    machine->entry(machine->arguments);
    Block *block = self->block;
    Warp *warp = self->warp;
    if (block->waiting) {
        for (uint32_t i = 0; i < machine->per_block; i++)
            if (block->threads[i].state == AT_BARRIER)
                fail_beside(EXIT_AT_BARRIER, -1, &block->threads[i]);
    }
    for (int l = 0; l < LANES; l++) {
        const Thread *other = warp->lane[l];
        if (other && other->state == AT_WARP && (other->mask >> self->lane & 1))
            fail_beside(MASK_NAMES_EXITED, -1, other);
    }
    self->state = ENDED;
    block->alive--;
    warp->alive &= ~(1u << self->lane);
    pause_fiber();
}

static void start_thread(Thread *thread) {
    const Launch *launch = machine->launch;
#ifdef __x86_64__
    /* Tops of stacks are spread over cache sets: all at one offset of a page, they would share. */
    uint64_t top = (uint64_t)thread->stack + launch->stack - thread->number % 16 * 192;
    uint64_t *sp = (uint64_t *)(top & ~15ull);
    *--sp = 0;
    *--sp = (uint64_t)thread_main;
    for (int i = 0; i < 6; i++) *--sp = 0;
    thread->sp = sp;
#else
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = thread->stack;
    thread->context.uc_stack.ss_size = launch->stack;
    thread->context.uc_link = NULL;
    makecontext(&thread->context, thread_main, 0);
#endif
}

static void start_block(Block *block, uint64_t id) {
    Machine *m = machine;
    const Launch *launch = m->launch;
    block->id = id;
    block->x = (uint32_t)(id % launch->grid[0]);
    block->y = (uint32_t)(id / launch->grid[0] % launch->grid[1]);
    block->z = (uint32_t)(id / launch->grid[0] / launch->grid[1]);
    block->alive = m->per_block;
    block->waiting = 0;
    block->epoch = 1;
    memset(block->warps, 0, m->n_warps * sizeof(Warp));
    memset(block->shared, 0xA5, m->shared_size);  /* Nobody may count on zeros. */
    if (m->shared_cells)
        memset(m->shared_cells + (uint64_t)(block - m->blocks) * m->shared_n, 0,
               m->shared_n * sizeof(Cell));
    for (uint32_t i = 0; i < m->per_block; i++) {
        Thread *thread = &block->threads[i];
        Warp *warp = &block->warps[i / LANES];
        thread->stack = block->stacks + (launch->stack + PAGE) * i + PAGE;
        thread->block = block;
        thread->warp = warp;
        thread->number = i;
        thread->lane = i % LANES;
        thread->x = i % launch->block[0];
        thread->y = i / launch->block[0] % launch->block[1];
        thread->z = i / launch->block[0] / launch->block[1];
        thread->clock = warp->clock = 1;
        thread->state = READY;
        warp->lane[thread->lane] = thread;
        warp->alive |= 1u << thread->lane;
        start_thread(thread);
    }
}

/* Runs the ready lanes of a warp once each; whether there was one. */
static bool run_warp(Warp *warp) {
    enum Schedule schedule = (enum Schedule)machine->launch->schedule;
    uint32_t turn = schedule == RANDOM ? (uint32_t)next_random() & 31 : schedule == REVERSED ? 31 : 0;
    bool ran = false;
    for (uint32_t i = 0; i < LANES; i++) {
        Thread *thread = warp->lane[i ^ turn];
        if (!thread || thread->state != READY) continue;
        self = thread;
        resume_fiber();
        if (machine->launch->fault.kind) return true;
        ran = true;
    }
    return ran;
}

static void report_deadlock(void) {
    Fault *fault = &machine->launch->fault;
    fault->kind = DEADLOCK;
    for (uint32_t b = 0; b < machine->resident; b++)
        for (uint32_t i = 0; i < machine->per_block; i++) {
            const Thread *thread = &machine->blocks[b].threads[i];
            if (thread->state == READY || thread->state == ENDED) continue;
            if (fault->waiting[thread->state - AT_BARRIER]++ == 0) {
                fault->other = fault->here;
                fault->here = (Place){thread->site, -1, thread->block->id, thread->number};
            }
        }
}

static void run_all(uint32_t *order) {
    Machine *m = machine;
    Launch *launch = m->launch;
    uint32_t n = m->resident * m->n_warps;
    for (uint32_t i = 0; i < n; i++) order[i] = launch->schedule == REVERSED ? n - 1 - i : i;
    for (;;) {
        if (launch->schedule == RANDOM)
            for (uint32_t i = n - 1; i > 0; i--) {
                uint32_t j = (uint32_t)(next_random() % (i + 1)), kept = order[i];
                order[i] = order[j];
                order[j] = kept;
            }
        bool ran = false, alive = false;
        for (uint32_t i = 0; i < n; i++) {
            Block *block = &m->blocks[order[i] / m->n_warps];
            if (!block->alive) continue;
            Warp *warp = &block->warps[order[i] % m->n_warps];
            while (run_warp(warp)) {
                ran = true;
                if (launch->fault.kind) return;
                if (launch->schedule == RANDOM && next_random() % 2) break;
            }
        }
        for (uint32_t b = 0; b < m->resident; b++) {
            Block *block = &m->blocks[b];
            if (!block->alive && m->next_block < m->n_blocks) {
                uint64_t id = m->next_block++;
                start_block(block, launch->schedule == REVERSED ? m->n_blocks - 1 - id : id);
                ran = true;
            }
            alive |= block->alive != 0;
        }
        if (!alive) return;
        if (!ran) {
            report_deadlock();
            return;
        }
    }
}

static void *reserve(uint64_t size) {
    void *memory = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void release(void *memory, uint64_t size) {
    if (memory) munmap(memory, size ? size : 1);
}

/* Stacks of the last launch that had guard pages, each of which costs two mappings: kept. */
static __thread char *kept_stacks;
static __thread uint64_t kept_size, kept_stride;

static char *take_stacks(uint64_t stride, uint64_t threads) {
    if (kept_stacks && kept_stride == stride && kept_size >= stride * threads) return kept_stacks;
    char *stacks = reserve(stride * threads);
    /* Every guard page is a mapping of its own, and a process may have some 65,000. */
    if (!stacks || threads > GUARDED) return stacks;
    for (uint64_t i = 0; i < threads; i++) mprotect(stacks + stride * i, PAGE, PROT_NONE);
    release(kept_stacks, kept_size);
    kept_stacks = stacks;
    kept_size = stride * threads;
    kept_stride = stride;
    return stacks;
}

EXPORT int32_t simt_launch(Launch *launch, Entry entry, void *arguments) {
    Machine m = {.launch = launch, .entry = entry, .arguments = arguments, .last_range = -1};
    m.random = launch->seed * 0x9E3779B97F4A7C15ull | 1;
    m.per_block = launch->block[0] * launch->block[1] * launch->block[2];
    m.n_warps = (m.per_block + LANES - 1) / LANES;
    m.n_blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    uint64_t together = launch->cooperative ? m.n_blocks : launch->schedule == RANDOM ? RESIDENT : 1;
    m.resident = (uint32_t)(together < m.n_blocks ? together : m.n_blocks);
    m.shared_size = launch->static_shared + launch->dynamic_shared;
    m.shared_n = m.shared_size / launch->shared_grain + 1;
    m.grid_epoch = 1;
    clock_gettime(CLOCK_MONOTONIC, &m.start);

    bool races = launch->check == RACES, complete = true;
    uint64_t threads = (uint64_t)m.per_block * m.resident;
    /* A gap before, between and behind the blocks' shared memory. */
    uint64_t stride = m.shared_stride = (m.shared_size + SHARED_GAP) & ~(PAGE - 1ull);
    uint64_t per_stack = launch->stack + PAGE;
    char *stacks = take_stacks(per_stack, threads), *shared = m.shared = reserve(stride * (m.resident + 1));
    uint64_t cells_size = races ? m.shared_n * m.resident * sizeof(Cell) : 0;
    m.shared_cells = races ? reserve(cells_size) : NULL;
    m.shadows = calloc((size_t)launch->n_ranges + 1, sizeof(Shadow));
    m.blocks = calloc(m.resident, sizeof(Block));
    Thread *all_threads = calloc(threads, sizeof(Thread));
    Warp *all_warps = calloc((uint64_t)m.n_warps * m.resident, sizeof(Warp));
    uint32_t *order = calloc((uint64_t)m.n_warps * m.resident, sizeof(uint32_t));
    complete = stacks && shared && m.shadows && m.blocks && all_threads && all_warps && order &&
               (!races || m.shared_cells);
    for (int32_t i = 0; complete && races && i < launch->n_ranges; i++) {
        const Range *range = &launch->ranges[i];
        m.shadows[i].n = (range->high - range->low) / range->grain + 1;
        m.shadows[i].cells = reserve(m.shadows[i].n * sizeof(Cell));
        complete = m.shadows[i].cells != NULL;
    }
    if (complete) {
        machine = &m;
        for (uint32_t b = 0; b < m.resident; b++) {
            Block *block = &m.blocks[b];
            block->threads = all_threads + (uint64_t)b * m.per_block;
            block->warps = all_warps + (uint64_t)b * m.n_warps;
            block->shared = shared + stride * b + SHARED_GAP / 2;
            block->stacks = stacks + per_stack * m.per_block * b;
            uint64_t id = m.next_block++;
            start_block(block, launch->schedule == REVERSED ? m.n_blocks - 1 - id : id);
        }
        run_all(order);
        machine = NULL;
        self = NULL;
    } else {
        launch->fault.kind = NO_MEMORY;
        launch->fault.size = per_stack * threads;
    }
    for (int32_t i = 0; m.shadows && i < launch->n_ranges; i++)
        release(m.shadows[i].cells, m.shadows[i].n * sizeof(Cell));
    release(m.shared_cells, cells_size);
    if (stacks != kept_stacks) release(stacks, per_stack * threads);
    release(shared, stride * (m.resident + 1));
    free(m.shadows);
    free(m.blocks);
    free(all_threads);
    free(all_warps);
    free(order);
    return launch->fault.kind;
}

/* ---- what libdevice and conversions have and libm has not */

EXPORT int32_t simt_ffs(int32_t x) { return __builtin_ffs(x); }
EXPORT int32_t simt_ffsll(int64_t x) { return __builtin_ffsll(x); }
EXPORT uint64_t simt_brevll(uint64_t x) {
    uint64_t reversed = 0;
    for (int i = 0; i < 64; i++) reversed |= (x >> i & 1) << (63 - i);
    return reversed;
}
EXPORT uint32_t simt_brev(uint32_t x) { return (uint32_t)(simt_brevll(x) >> 32); }
EXPORT int32_t simt_isnand(double x) { return x != x; }
EXPORT int32_t simt_isnanf(float x) { return x != x; }
EXPORT int32_t simt_isinfd(double x) { return __builtin_isinf(x) != 0; }
EXPORT int32_t simt_isinff(float x) { return __builtin_isinf(x) != 0; }
EXPORT int32_t simt_isfinited(double x) { return __builtin_isfinite(x) != 0; }
EXPORT int32_t simt_finitef(float x) { return __builtin_isfinite(x) != 0; }

EXPORT float simt_half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    uint32_t fraction = half & 0x3FF, bits;
    if (exponent == 31) bits = 0x7F800000 | fraction << 13;
    else if (exponent) bits = (exponent + 112) << 23 | fraction << 13;
    else {
        float small = (float)fraction * 0x1p-24f;
        memcpy(&bits, &small, 4);
    }
    bits |= sign;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

EXPORT uint16_t simt_float_to_half(float value) {  /* to the nearest, ties to even */
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) return sign | 0x7E00;
    if (bits >= 0x477FF000) return sign | 0x7C00;
    if (bits < 0x38800000) {
        /* Adding 0.5 leaves the value in units of 2**-24 in the low bits, rounded. */
        float shifted;
        memcpy(&shifted, &bits, 4);
        shifted += 0.5f;
        memcpy(&bits, &shifted, 4);
        return sign | (uint16_t)(bits - 0x3F000000);
    }
    bits += 0xC8000FFF + (bits >> 13 & 1);
    return sign | (uint16_t)(bits >> 13);
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_runtime"};
PyMODINIT_FUNC PyInit__runtime(void) { return PyModule_Create(&definition); }
