/* Runs a quantized network on an emulated board: QEMU's mps2-an385, a Cortex-M3 without floating
 * point. It reads inputs.bin, one input after the other, and writes what the network makes of each
 * to board.bin. Files and text go through QEMU (Arm's semihosting); on a board of yours, put the
 * inputs into memory, and print by what it has. */
#include "network.h"

enum { OPEN = 1, CLOSE = 2, PRINT = 4, WRITE = 5, READ = 6, EXIT = 0x18 };
enum { READ_BINARY = 1, WRITE_BINARY = 5, ENDED = 0x20026, FAILED = 0x20023 };
#define TIMER ((volatile uint32_t *)0xE000E010) /* counts down, 40 ns a tick */
#define MOST 0xFFFFFFu

extern uint32_t bss_begin, bss_end, stack_end;
static int8_t arena[NETWORK_ARENA] __attribute__((aligned(4)));
static network_input input[NETWORK_INPUT];
static network_output output[NETWORK_OUTPUT];

static int32_t host(int32_t what, const void *with)
{
    register int32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static uintptr_t open_file(const char *name, uintptr_t length, uintptr_t how)
{
    const uintptr_t with[] = {(uintptr_t)name, how, length};
    return (uintptr_t)host(OPEN, with);
}

/* Returns whether all bytes were moved. */
static int move(int32_t what, uintptr_t file, const void *bytes, uintptr_t num)
{
    const uintptr_t with[] = {file, (uintptr_t)bytes, num};
    return host(what, with) == 0;
}

static void print(uint32_t number, const char *after)
{
    char digits[11], *at = digits + 10;
    *at = 0;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    host(PRINT, at);
    host(PRINT, after);
}

static uint32_t largest(void)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i < NETWORK_OUTPUT; i++) {
        found = output[i] > output[found] ? i : found;
    }
    return found;
}

int main(void)
{
    const uintptr_t from = open_file("inputs.bin", 10, READ_BINARY);
    const uintptr_t to = open_file("board.bin", 9, WRITE_BINARY);
    uint32_t ticks = 0;
    if ((int32_t)from < 0 || (int32_t)to < 0) {
        host(PRINT, "There is no inputs.bin in this folder, or board.bin cannot be written.\n");
        host(EXIT, (const void *)FAILED);
    }
    TIMER[1] = MOST;
    TIMER[0] = 5; /* on, by the clock of the processor */
    while (move(READ, from, input, sizeof input)) {
        TIMER[2] = 0; /* any write starts it again */
        network_run(input, output, arena);
        ticks = MOST - TIMER[2];
        move(WRITE, to, output, sizeof output);
        print(largest(), " ");
    }
    host(PRINT, "\n");
    print(ticks, " ticks for the last input\n");
    host(CLOSE, &to);
    host(EXIT, (const void *)ENDED);
    return 0;
}

void reset(void)
{
    for (uint32_t *word = &bss_begin; word < &bss_end; word++) {
        *word = 0;
    }
    main();
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    &stack_end, (const void *)reset};
